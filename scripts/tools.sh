# Where the outside programs are that building and testing need. Sourced by the other scripts; it
# changes nothing. A variable the caller has set (KUBECTL, ETCD_BIN, PYTHON) always wins.

KYANITE_CACHE="${KYANITE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kyanite}"
CACHE_BIN="$KYANITE_CACHE/bin"
VENV="$KYANITE_CACHE/venv"
AZURE_VENV="$KYANITE_CACHE/azure"
UPSTREAM="$KYANITE_CACHE/upstream"
# containerd, runc and a static busybox, for the swap and the machines that run a container.
CONTAINERD_BIN="${CONTAINERD_BIN:-$KYANITE_CACHE/containerd}"
# Clients in other languages, as scripts/setup builds them from proof/interop/clients.
# shellcheck disable=SC2034
INTEROP_CLIENTS="$KYANITE_CACHE/clients"
# Upstream's own programs, as scripts/upstream builds them.
UPSTREAM_BIN="${UPSTREAM_BIN:-$UPSTREAM/bin}"

# The oldest client minor versions the tests are written for.
OLDEST_KUBECTL_MINOR=30
OLDEST_ETCD_MINOR=4
OLDEST_PYTHON_CLIENT_MAJOR=30

# first_that CHECK CANDIDATE...: prints the first candidate that CHECK accepts.
first_that() {
    local check="$1" candidate path
    shift
    for candidate in "$@"; do
        [ -n "$candidate" ] || continue
        path="$(command -v "$candidate" 2>/dev/null)" || continue
        if "$check" "$path"; then
            printf '%s\n' "$path"
            return 0
        fi
    done
    return 1
}

kubectl_is_recent() {
    local minor
    minor="$("$1" version --client 2>/dev/null | sed -nE 's/^Client Version: v1\.([0-9]+).*/\1/p')"
    [ "${minor:-0}" -ge "$OLDEST_KUBECTL_MINOR" ]
}

etcd_is_recent() {
    local minor
    minor="$("$1" --version 2>/dev/null | sed -nE 's/^etcd Version: 3\.([0-9]+).*/\1/p')"
    [ "${minor:-0}" -ge "$OLDEST_ETCD_MINOR" ]
}

python_has_client() {
    "$1" -c "import sys, importlib.metadata as m
sys.exit(int(m.version('kubernetes').split('.')[0]) < $OLDEST_PYTHON_CLIENT_MAJOR)" 2>/dev/null
}

az_runs() { [ -x "$1" ]; }

find_kubectl() { first_that kubectl_is_recent "${KUBECTL:-}" kubectl "$CACHE_BIN/kubectl"; }
find_etcd() { first_that etcd_is_recent "${ETCD_BIN:-}" etcd "$CACHE_BIN/etcd"; }
find_python() { first_that python_has_client "${PYTHON:-}" "$VENV/bin/python3" python3; }
find_az() { first_that az_runs "${AZ:-}" az "$AZURE_VENV/bin/az"; }
