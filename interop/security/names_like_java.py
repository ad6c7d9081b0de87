# ruff: noqa: T201  what it prints is its report
"""Compares distinguished names and principal mapping rules with Java and Kafka, on many random ones.

    .venv/bin/python interop/security/names_like_java.py [COUNT] [SEED]

Needs a JDK, and Kafka's jars in .cache/apache-kafka-4.3.0. Prints each difference; exit code 1 if there is one.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from headrace.properties import ConfigError
from headrace.security.tls.der import DerError
from headrace.security.tls.mapping_rules import MappingRules, NoMatchingRule
from headrace.security.tls.names import java_name

ROOT = Path(__file__).resolve().parents[2]
JAR = ROOT / ".cache/apache-kafka-4.3.0/kafka-clients-4.3.0.jar"

IDENTIFIERS = [bytes.fromhex(text) for text in (
    "550403", "550406", "550407", "550408", "550409", "55040a", "55040b", "55040c", "550405", "55042a",
    "0992268993f22c640119", "0992268993f22c640101", "2a864886f70d010901", "2a03", "883703", "2b0601040182370f",
)]  # fmt: skip
ENCODINGS = {
    0x0C: "utf-8",
    0x13: "latin-1",
    0x14: "latin-1",
    0x16: "latin-1",
    0x1B: "latin-1",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
OTHER_TAGS = (0x04, 0x03, 0x02, 0x12, 0x1A, 0x30)
ALPHABET = 'abcXYZ 0123,=+<>#;"\\/-_.\r\n\t\0äß€日é'
RULES = [
    "DEFAULT", "RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L", "RULE:^CN=([^,]*).*$/$1/", "RULE:^(.)*$/x$2y/U", "RULE:(.*)/$1/", "",
    "RULE:^CN=(.*?),(.*)$/$2-$11-$3/", r"RULE:^CN=(.*?)\,OU=.*$/$1\,$1/L", "RULE:(CN=.*)/$0/L", "RULE:a/b", "garbage",
    "RULE:^CN=(\\w+).*$/$1/", "RULE:([a-z]*).*/$1/U", "RULE:(x)?CN=(.*)/<$1>$2/", "RULE:.*/lit\\$1/",
]  # fmt: skip


def tlv(tag: int, content: bytes) -> bytes:
    if len(content) < 0x80:
        return bytes([tag, len(content)]) + content
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def random_name(chance: random.Random) -> bytes:
    rdns = []
    for _ in range(chance.randint(0, 5)):
        attributes = []
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            text = "".join(chance.choices(ALPHABET, k=chance.randint(0, 12)))
            tag = chance.choice((0x0C, 0x13, *ENCODINGS, chance.choice(OTHER_TAGS)))
            value = text.encode(ENCODINGS.get(tag, "utf-8"), "replace")
            if tag in (0x02, 0x03):
                value = b"\0" + value
            if tag == 0x30:
                value = tlv(0x0C, value)
            attributes.append(tlv(0x30, tlv(0x06, chance.choice(IDENTIFIERS)) + tlv(tag, value)))
        rdns.append(tlv(0x31, b"".join(attributes)))
    return tlv(0x30, b"".join(rdns))


def our_name(der: bytes) -> str:
    try:
        return java_name(der).encode("utf-8", "replace").hex()
    except DerError:
        return "error"


def our_mapping(rules: str, name: str) -> str:
    try:
        return MappingRules(rules).user_name(name).encode().hex()
    except NoMatchingRule:
        return "none"
    except ConfigError:
        return "error"


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    chance = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else None)
    questions, ours = [], []
    for _ in range(count):
        der = random_name(chance)
        questions.append(f"name {der.hex()}")
        ours.append(our_name(der))
        rules = chance.choice((",", ", ", " , ")).join(chance.choices(RULES, k=chance.randint(1, 4)))
        name = f"CN={''.join(chance.choices('abcDEF', k=3))},OU={''.join(chance.choices('XYz', k=2))}"
        questions.append(f"map {rules.encode().hex()} {name.encode().hex()}")
        ours.append(our_mapping(rules, name))
    java = ["java", "-cp", str(JAR), str(Path(__file__).with_name("JavaNames.java"))]
    run = subprocess.run(java, input="\n".join(questions), capture_output=True, text=True, check=True, timeout=300)
    theirs = run.stdout.split("\n")[: len(questions)]
    differences = 0
    for question, our, their in zip(questions, ours, theirs, strict=True):
        if our != their:
            differences += 1
            if differences <= 20:
                kind, *arguments = question.split(" ")
                print(kind, *(bytes.fromhex(text) for text in arguments), "ours", shown(our), "Java's", shown(their))
    print(f"{len(questions)} names and rules, {differences} differences")
    return min(differences, 1)


def shown(answer: str) -> str:
    return answer if answer in ("error", "none") else repr(bytes.fromhex(answer).decode())


if __name__ == "__main__":
    sys.exit(main())
