#!/bin/sh
# Inside the image's first stage: what docker/Dockerfile calls. Not for people.
#   build.sh packages      install what compiling needs; with CUDA=yes also NVIDIA's toolkit and NCCL
#   build.sh compile OUT   compile and install into OUT; OUT/packages names what the programs need
#   build.sh take OUT      the same from build/image, which has its file `packages` already
#   build.sh needs FOLDER  the packages that the programs of FOLDER/usr/bin need, one a line
set -eu
SOURCE=$(dirname "$(dirname "$(readlink -f "$0")")")

packages() {
    apt-get -qq update
    # The list is the one that ./run uses.
    # shellcheck disable=SC2046
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends binutils \
        $(sed -n '/^BUILD_PACKAGES="/,/"$/p' "$SOURCE/run" | sed 's/BUILD_PACKAGES=//; s/"//g') \
        $([ "${CUDA:-no}" = no ] || echo python3-pip) >/dev/null
    [ "${CUDA:-no}" = no ] || toolkit /usr/local
}

# Of what NVIDIA publishes as Python packages: the compiler, the runtime and NCCL, laid out as CMake looks
# for them. Versions that fit each other.
toolkit() { # FOLDER
    python3 -m pip install -q --root-user-action=ignore --no-deps --target "$1/wheels" 'nvidia-cuda-runtime==13.0.*' \
        'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-cccl==13.0.*' \
        'nvidia-nccl-cu13>=2.28'
    ln -sfn wheels/nvidia/cu13 "$1/cuda"
    ln -sf libcudart.so.13 "$1/cuda/lib/libcudart.so"
    ln -sf ../../nccl/lib/libnccl.so.2 "$1/cuda/lib/libnccl.so"
    ln -sf ../../nccl/include/nccl.h "$1/cuda/include/nccl.h"
}

# Beside the modules, which look for them there; the driver's own library comes from the host.
runtime() { # OUT
    cp -L /usr/local/cuda/lib/libcudart.so.13 /usr/local/wheels/nvidia/nccl/lib/libnccl.so.2 "$1/usr/lib/tutti/"
}

compile() {
    cmake -S "$SOURCE" -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr \
        -DTUTTI_TESTS=OFF -DTUTTI_BENCH=OFF
    cmake --build /build
    DESTDIR=$1 cmake --install /build --strip
    [ "${CUDA:-no}" = no ] || runtime "$1"
}

# Which packages own the libraries: asked of the programs, so that no list can be out of date. A library
# of /usr/lib may be known to dpkg as one of /lib, and the other way round.
needs() {
    own=$(dirname "$(find "$1" -name 'libtutti.so.0' | head -1)")
    paths=$(for file in "$1"/usr/bin/*; do LD_LIBRARY_PATH=$own ldd "$file" 2>/dev/null || true; done |
        awk -v own="$own/" '$3 ~ "^/" && index($3, own) != 1 { print $3 }' | sort -u |
        while read -r library; do
            real=$(readlink -f "$library")
            printf '%s /usr%s %s\n' "$real" "${real#/usr}" "${real#/usr}"
        done)
    # shellcheck disable=SC2086
    dpkg -S $paths 2>/dev/null | cut -d: -f1 | sort -u
}

# What only compiles against us does not run in a container.
slim() {
    rm -rf "$1/usr/include" "$1"/usr/lib/*/cmake "$1"/usr/lib/*/pkgconfig "$1"/usr/lib/*/libtutti.so "$1"/usr/lib/*/*.a
    needs "$1" >"$1/packages"
    test -s "$1/packages"
}

take() {
    mkdir -p "$1"
    cp -a "$SOURCE/build/image/." "$1/"
    test -s "$1/packages"
}

case "${1:-}" in
packages) packages ;;
compile) compile "$2" && slim "$2" ;;
toolkit) toolkit "$2" ;;
take) take "$2" ;;
needs) needs "$2" ;;
*) echo "usage: build.sh packages | compile OUT | take OUT | needs OUT" >&2; exit 2 ;;
esac
