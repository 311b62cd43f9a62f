#!/usr/bin/env bash
# RoadRunner (github.com/roadrunner-server/tcplisten v1.5.2): `http.address: :8080` listens on IPv4 alone, where Go's own net.Listen, and so
# FrankenPHP, listens on both families. In a pod that has addresses of IPv6 alone, nobody reaches it; [::]:8080 is for both.
#
# Seen: ":0" is 0.0.0.0 for tcplisten and [::] for net.Listen; a client of IPv6 is refused by the first, and one of IPv4 is served by tcplisten's "[::]:0".
# Installs the module in a temporary folder, runs it without phpprof on loopback, and fails if it prints anything else. Linux with IPv6.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"net"
	"strconv"

	"github.com/roadrunner-server/tcplisten"
)

func serves(listener net.Listener, host string) bool {
	port := listener.Addr().(*net.TCPAddr).Port
	client, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err == nil {
		client.Close()
	}
	return err == nil
}

func show(name string, listener net.Listener, err error) {
	if err != nil {
		panic(err)
	}
	fmt.Println(name, listener.Addr().(*net.TCPAddr).IP, "IPv4", serves(listener, "127.0.0.1"), "IPv6", serves(listener, "::1"))
}

func main() {
	listener, err := tcplisten.CreateListener(":0")
	show("tcplisten :0", listener, err)
	listener, err = net.Listen("tcp", ":0")
	show("net.Listen :0", listener, err)
	listener, err = tcplisten.CreateListener("[::]:0")
	show("tcplisten [::]:0", listener, err)
}
GO
go mod init seen >/dev/null 2>&1
go get github.com/roadrunner-server/tcplisten@v1.5.2 >/dev/null 2>&1
seen=$(go run .)
expected='tcplisten :0 0.0.0.0 IPv4 true IPv6 false
net.Listen :0 :: IPv4 true IPv6 true
tcplisten [::]:0 :: IPv4 true IPv6 true'
echo "$seen"
[ "$seen" = "$expected" ] || { echo "this has changed" >&2; exit 1; }
