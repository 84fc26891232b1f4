#!/bin/sh
# Installs the daemon for users of the group `profiler`, or removes it. Users need no capability and no set-user-ID program:
# the daemon runs as root, takes who asks from the kernel, and shows each user own processes alone.
set -eu

usage() {
    cat <<'END'
Usage: setup.sh PROFILERD      install this program, its unit and the group `profiler`
       setup.sh --remove       remove the program and its unit; the group stays

Run it as root. Then let a user in: usermod --append --groups profiler USER
END
}

program=/usr/local/sbin/profilerd
unit=/etc/systemd/system/profilerd.service
here=$(dirname "$0")

case "${1:-}" in
-h | --help)
    usage
    exit 0
    ;;
"")
    usage >&2
    exit 2
    ;;
esac
if [ "$(id -u)" -ne 0 ]; then
    echo "setup.sh: run it as root: it installs a service" >&2
    exit 1
fi
# Whether systemd runs this machine, and can be told of units.
has_systemd() { [ -d /run/systemd/system ]; }

if [ "$1" = --remove ]; then
    if has_systemd; then
        systemctl disable --now profilerd.service || true
    fi
    rm -f "$program" "$unit"
    if has_systemd; then
        systemctl daemon-reload
    fi
    echo "removed $program and $unit"
    exit 0
fi
if [ ! -x "$1" ] || [ -d "$1" ]; then
    echo "setup.sh: $1 is not a program: build it by \`cargo build --release\` and name target/release/profilerd" >&2
    exit 1
fi
getent group profiler >/dev/null || groupadd --system profiler
install -D --mode 755 --owner root --group root "$1" "$program"
install -D --mode 644 --owner root --group root "$here/profilerd.service" "$unit"
echo "installed $program and $unit"
if has_systemd; then
    systemctl daemon-reload
    systemctl enable --now profilerd.service
else
    echo "systemd does not run here: start the daemon by \`setpriv --regid profiler --clear-groups $program --socket-mode 660\`"
fi
echo "let a user in by \`usermod --append --groups profiler USER\`"
