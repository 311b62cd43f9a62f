#!/usr/bin/env bash
# github.com/argoproj/argo-rollouts v1.10.1, metric provider `web`: an answer with status 200 whose body is not JSON is a successful measurement,
# whatever successCondition and failureCondition say; they are not evaluated (metricproviders/webmetric/webmetric.go, parseResponse). So the page of
# a proxy or of a login in front of the server, or an empty body, lets a rollout go on. With JSON, the conditions decide as documented. A server
# for such a metric should answer nothing but JSON with 200, and who writes one should look at the value that was measured, not at the phase alone.
#
# Seen, with successCondition `result.ok == true` and failureCondition `result.ok == false`: `{"ok":false}: Failed`, `<html>Sign in</html>:
# Successful`, an empty body: Successful.
# Installs the module in a temporary folder, runs the provider alone on a local server, without a controller, a cluster and phpprof, and fails if it
# prints anything else.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >go.mod <<'MOD'
module seen

go 1.26.1

require github.com/argoproj/argo-rollouts v1.10.1

replace (
	k8s.io/api => k8s.io/api v0.34.5
	k8s.io/apiextensions-apiserver => k8s.io/apiextensions-apiserver v0.34.5
	k8s.io/apimachinery => k8s.io/apimachinery v0.34.5
	k8s.io/client-go => k8s.io/client-go v0.34.5
)
MOD
cat >main.go <<'GO'
package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/argoproj/argo-rollouts/metricproviders/webmetric"
	"github.com/argoproj/argo-rollouts/pkg/apis/rollouts/v1alpha1"
	"github.com/sirupsen/logrus"
)

func main() {
	logrus.SetOutput(io.Discard)
	for _, body := range []string{`{"ok":true}`, `{"ok":false}`, `<html>Sign in</html>`, ``} {
		server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { io.WriteString(out, body) }))
		metric := v1alpha1.Metric{
			Name: "seen", SuccessCondition: "result.ok == true", FailureCondition: "result.ok == false",
			Provider: v1alpha1.MetricProvider{Web: &v1alpha1.WebMetric{URL: server.URL}},
		}
		parser, err := webmetric.NewWebMetricJsonParser(metric)
		if err != nil {
			panic(err)
		}
		provider := webmetric.NewWebMetricProvider(*logrus.NewEntry(logrus.StandardLogger()), server.Client(), parser)
		fmt.Printf("%q: %s\n", body, provider.Run(&v1alpha1.AnalysisRun{}, metric).Phase)
		server.Close()
	}
}
GO
go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 1; }
go run . | tee seen.txt
diff seen.txt - <<'SEEN'
"{\"ok\":true}": Successful
"{\"ok\":false}": Failed
"<html>Sign in</html>": Successful
"": Successful
SEEN
