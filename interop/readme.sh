# README.md, block by block, in fresh virtual environments that pip fills with what the blocks say to install; part of
# script/interop. The project is a wheel that is built first. The same tests are part of script/test, without pip and
# without the blocks that need Spark.

readme_checks() {
    check 'readme: the wheel is built' build_wheel
    check 'readme: every block works with only what it installs' readme_blocks
}

build_wheel() { .venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/wheel" .; }

readme_blocks() {
    HEADRACE_README_WHEEL=$(echo "$work"/wheel/*.whl) timeout --kill-after=5 1200 .venv/bin/pytest -n 0 -v \
        -p no:cacheprovider --timeout 900 tests/docs/test_readme.py
}
