import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.properties import ConfigError
from headrace.security.password_encoder import GCM, KEY_FACTORIES, PasswordEncoder, PasswordNotDecoded

FAST = PasswordEncoder("secret", iterations=1)
#: Encoded by Java 17 as Kafka 3.9 does it.
OF_JAVA_CBC = (
    "initializationVector:gwipr7En4LB/jHAXWxQFfg==,keyLength:128,salt:b6nDlv4llmX8CGe5/cAVLFmpfs/ic+wU+wmb1cHwB2M"
    "OAz+l2+PTn0iJQ8ABmTBZexdZXk7roPzyq99Y9oXDlVcUTySpLCnzHvWQYaTov0HXILnQRkRZ6t5hBA1X28ZPtwhSmtbWMgyCu1svEt9sqVC"
    "McO6LZtVyJM4EEhdNuVxScQxYVyiGDaaKcjeQNR+ofZiZCohI8LjvcDlrKS7sOGOUyvN7rvfjkQNGgQW3Zk67kBn6ffDE7T/nhcjMbpQV7el"
    "HfSJYrXBadn2dwuQGaf+RxUeGzQ12Cx9O91feJbnvGC4UmeXMxDmR+njpG9q0TK3H1i3rHEPfdhEO69c8Tg==,keyFactoryAlgorithm:PB"
    "KDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:4096,passwordLength:12,encryptedPassword:"
    "9p2SeaIAlXibRxg2+YoKkg=="
)
OF_JAVA_GCM = (
    "initializationVector:jL8ITMXJJkjxXH3c,keyLength:128,salt:BUXS+WM3j6q2GVpd9Tq9JETuYNDHMs/VCcTHjXjS1VGsIQmfhn4"
    "eDGRKc60gfO0L8sFu7iix8SPLcStblW52FQUTTuyVFkenmYZvZkcZbUHTkwaHgKfjf26fs5z3uB0L7ZCbrfNnu4B68vsytatAz5WeOLklaoc"
    "cTSyVqBytVIqsE4E2e93HNaMx34kgynNLUv0ThGWudvuSTEizbw46NzAKcPRBvEW0lL4wddJXbNgIoLrjs58hwe0g0Ojey9XSD6busJEDVge"
    "wuhuvI+PQ2ZHXieNivGFoWdjswKCk8hmqHISh2C2sLfEXuWwZbjEsVCOHCF3ODn7fhD3OG9TaDQ==,keyFactoryAlgorithm:PBKDF2With"
    "HmacSHA512,cipherAlgorithm:AES/GCM/NoPadding,authenticationTagLength:128,iterations:4096,passwordLength:12,e"
    "ncryptedPassword:AVs6ImcKrbImuBvkYUqI/Vg+/QtrKCNdTyu/MGE="
)


@pytest.mark.parametrize("stored", [OF_JAVA_CBC, OF_JAVA_GCM], ids=["CBC", "GCM"])
def test_what_java_has_encoded_is_decoded(stored):
    assert PasswordEncoder("secrét").decode(stored) == "dynämic-pass"


@given(st.text(max_size=50))
def test_what_is_encoded_is_decoded(password):
    assert FAST.decode(FAST.encode(password)) == password


@pytest.mark.parametrize("factory", KEY_FACTORIES)
@pytest.mark.parametrize("cipher", ["AES/CBC/PKCS5Padding", GCM])
@pytest.mark.parametrize("key_length", [128, 256])
def test_every_algorithm(factory, cipher, key_length):
    encoder = PasswordEncoder("secret", factory, cipher, key_length, 10)
    assert FAST.decode(encoder.encode("päss")) == "päss"


def test_the_stored_form():
    pairs = dict(pair.split(":") for pair in PasswordEncoder("secret").encode("pass😀").split(","))
    assert set(pairs) == {
        "keyFactoryAlgorithm",
        "cipherAlgorithm",
        "initializationVector",
        "keyLength",
        "salt",
        "iterations",
        "encryptedPassword",
        "passwordLength",
    }
    assert pairs["passwordLength"] == "6"
    assert (pairs["keyLength"], pairs["iterations"]) == ("128", "4096")


def test_two_encodings_differ():
    assert FAST.encode("x") != FAST.encode("x")


def test_another_secret_does_not_decode():
    other = PasswordEncoder("other")
    for encoder in (FAST, PasswordEncoder("secret", cipher=GCM)):
        with pytest.raises(PasswordNotDecoded, match="another secret"):
            other.decode(encoder.encode("canary" * 10))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("keyLength:128", "keyLength:129"), "not supported"),
        (("AES/CBC/PKCS5Padding", "DES/CBC/PKCS5Padding"), "not supported"),
        (("PBKDF2WithHmacSHA512", "MD5"), "not supported"),
        (("iterations:1,", "iterations:999999999,"), "999999999 iterations"),
        (("iterations:1,", "iterations:x,"), "not a number"),
        (("iterations:1,", ""), "no iterations"),
        (("salt:", "salt:!"), "not base64"),
        (("passwordLength:1", "passwordLength:2"), "another secret"),
    ],
)
def test_what_cannot_be_decoded(change, message):
    with pytest.raises(PasswordNotDecoded, match=message):
        FAST.decode(FAST.encode("x").replace(*change))


@given(st.text(max_size=80))
def test_any_text_is_refused(text):
    with pytest.raises(PasswordNotDecoded):
        FAST.decode(text)


@pytest.mark.parametrize(
    "parameters",
    [{"key_factory": "MD5"}, {"cipher": "AES/ECB/NoPadding"}, {"key_length": 8}],
)
def test_unknown_parameters_are_refused(parameters):
    with pytest.raises(ConfigError, match=r"password\.encoder\."):
        PasswordEncoder("secret", **parameters)


def test_the_secret_is_not_in_the_repr():
    assert "secret'" not in repr(PasswordEncoder("secret'"))
