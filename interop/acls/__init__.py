"""The ACL matrix: the same requests as the same principals on Apache Kafka and on Headrace, API by API.

A row (``rows_*.py``) is one request with the ACLs that it needs. A column (``cells.py``) is a principal: the super
user, a user with exactly the needed ACLs, a user with DESCRIBE on everything, a user with nothing, and so on. Each
cell has topics, groups, transactional ids and a user of its own, so cells do not disturb each other, and all ACLs
exist from the beginning. An answer is reduced to its codes and to what it shows (``normal_form.py``).

``tests/broker/authorization/kafka_acl_facts.json`` has the answers of Apache Kafka. ``script/test`` compares Headrace
with that file, ``script/interop security`` with a live Apache Kafka::

    PYTHONPATH=interop python -m acls.matrix record  tests/broker/authorization/kafka_acl_facts.json
    PYTHONPATH=interop python -m acls.matrix compare tests/broker/authorization/kafka_acl_facts.json [ROW...]
    PYTHONPATH=interop python -m acls.matrix live
"""
