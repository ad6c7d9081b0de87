"""The check at run time whether the kernel could encrypt TLS, and its log line. Headrace does not use kTLS."""

import errno

import pytest

from headrace import Broker
from headrace.broker.network.kernel_tls import KernelTls, ask_kernel, find_kernel_tls, log_kernel_tls
from tls_harness import tls_config


@pytest.mark.parametrize(
    ("number", "openssl", "expected"),
    [
        (errno.ENOTCONN, (3, 0, 0), KernelTls(True)),
        (0, (3, 5, 1), KernelTls(True)),
        (errno.ENOENT, (3, 0, 0), "ENOENT"),
        (errno.EPERM, (3, 0, 0), "EPERM"),
        (errno.ENOPROTOOPT, (3, 0, 0), "ENOPROTOOPT"),
        (99_999, (3, 0, 0), "99999"),
        (errno.ENOTCONN, (1, 1, 1), "OpenSSL 1.1 is older than 3.0"),
    ],
)
def test_what_kernel_and_openssl_offer(number, openssl, expected):
    found = find_kernel_tls(lambda: number, openssl)
    if isinstance(expected, KernelTls):
        assert found == expected
    else:
        assert not found.is_available
        assert expected in found.missing


def test_an_old_openssl_asks_no_kernel():
    def fails():
        raise AssertionError

    assert not find_kernel_tls(fails, (1, 1, 1)).is_available


def test_this_kernel_answers():
    assert ask_kernel() in (errno.ENOTCONN, errno.ENOENT, errno.ENOPROTOOPT, errno.EPERM)


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (KernelTls(True), "kernel TLS is available and not used"),
        (
            KernelTls(False, "no kernel"),
            "listener EXTERNAL: OpenSSL encrypts in this process; kernel TLS is not available, no kernel",
        ),
    ],
)
def test_the_line_in_the_log(caplog, found, line):
    caplog.set_level("INFO")
    log_kernel_tls("EXTERNAL", found)
    assert line in caplog.text


def test_a_broker_with_tls_says_it_once_and_a_plain_broker_says_nothing(caplog):
    caplog.set_level("INFO")
    with Broker():
        pass
    assert "kernel TLS" not in caplog.text
    with Broker(config=tls_config()):
        pass
    assert caplog.text.count("kernel TLS is") == 1
