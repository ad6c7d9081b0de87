import pytest

from headrace.security.small_files import UnreadableFileError, read_small_file, read_small_text


def test_a_file_may_have_as_many_bytes_as_the_limit(tmp_path):
    file = tmp_path / "secret"
    file.write_bytes("grün".encode())
    assert read_small_file(file, 5) == "grün".encode()
    assert read_small_text(file, 5) == "grün"
    with pytest.raises(UnreadableFileError, match=r"^it has more than 4 bytes$"):
        read_small_text(file, 4)


def test_a_file_that_does_not_end(tmp_path):
    (tmp_path / "endless").symlink_to("/dev/zero")
    with pytest.raises(UnreadableFileError, match=r"^it has more than 100 bytes$"):
        read_small_file(tmp_path / "endless", 100)


@pytest.mark.parametrize(
    ("content", "reason"), [(None, r"^No such file or directory$"), (b"\xff\xfe", r"^it is not UTF-8 text$")]
)
def test_the_reason_says_nothing_of_the_content(tmp_path, content, reason):
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UnreadableFileError, match=reason):
        read_small_text(file, 100)
