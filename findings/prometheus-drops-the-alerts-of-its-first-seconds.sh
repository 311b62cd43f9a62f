#!/usr/bin/env bash
# Prometheus 2.42.0 (Debian 12): an alert that fires in the first five seconds after a start is dropped, because no Alertmanager is discovered
# yet, although its configuration names one. It is sent again after a minute (--rules.alert.resend-delay), not when Alertmanager is known.
#
# Seen: after 10 s, one alert fires, one Alertmanager is discovered, one notification is dropped, and none is sent. Nothing is logged.
# Takes the program from Debian's package, runs it in a temporary folder without phpprof, and fails if it does anything else.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
apt-get -qq -o APT::Sandbox::User=root download prometheus=2.42.0+ds-5+deb12u1
dpkg -x ./*.deb .
cat >rules.yml <<'YAML'
groups: [{name: one, rules: [{alert: Fires, expr: vector(1)}]}]
YAML
cat >prometheus.yml <<'YAML'
global: {evaluation_interval: 1s}
rule_files: [rules.yml]
alerting: {alertmanagers: [{static_configs: [{targets: ["127.0.0.1:19093"]}]}]}
YAML
# What listens there takes each notification.
python3 - <<'PY' &
from http.server import BaseHTTPRequestHandler, HTTPServer
class Taker(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_): pass
HTTPServer(("127.0.0.1", 19093), Taker).serve_forever()
PY
usr/bin/prometheus --config.file=prometheus.yml --storage.tsdb.path=data --web.listen-address=127.0.0.1:19090 2>log &
sleep 10
value() { curl -sS --noproxy '*' http://127.0.0.1:19090/metrics | sed -n "s|^$1[^ ]* ||p" | head -1; }
firing=$(curl -sS --noproxy '*' http://127.0.0.1:19090/api/v1/alerts | grep -o '"state":"firing"' | wc -l)
seen="firing $firing, discovered $(value prometheus_notifications_alertmanagers_discovered), dropped $(value prometheus_notifications_dropped_total), sent $(value prometheus_notifications_sent_total)"
echo "$seen; in the log: $(grep -ci 'drop' log || true)"
[ "$seen" = "firing 1, discovered 1, dropped 1, sent 0" ]
