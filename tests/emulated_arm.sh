#!/bin/sh -e
# Makes FOLDER/root, a Python for 64-bit ARM with the libraries of this environment, which an emulator can run:
#
#     apt-get install debootstrap qemu-user-static
#     tests/emulated_arm.sh FOLDER
#     DISTLS_ARM=FOLDER/root pytest --run-slow tests/workers/compilation/test_processors.py -k emulated
#
# Needs root, Debian's archive and PyPI. Nothing is installed on this machine, and nothing is compiled.
folder=$1
repository=$(cd "$(dirname "$0")/.." && pwd)
root=$folder/root
mkdir -p "$folder"
debootstrap --arch=arm64 --foreign --variant=minbase --include=python3,libgomp1,libstdc++6 bookworm "$root"
# unpacked, not set up: nothing of it runs but Python
for package in "$root"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$package" "$root"; done

pip list --format=freeze | grep -v -i -e '^distls==' -e '^pip==' > "$folder/versions"
python -c '
import sys, tomllib
print(*tomllib.load(open(sys.argv[1], "rb"))["project"]["dependencies"], sep="\n")
' "$repository/pyproject.toml" > "$folder/needed"
pip install --quiet --target "$root/usr/lib/python3/dist-packages" --only-binary=:all: --python-version 3.11 \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 \
    --constraint "$folder/versions" --requirement "$folder/needed"
pip install --quiet --target "$root/usr/lib/python3/dist-packages" --no-deps "$repository"  # for its version
qemu-aarch64-static -L "$root" "$root/usr/bin/python3" -c 'import platform; print("Python for", platform.machine())'
