{{- define "phpprof.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}-operator
{{- end }}

{{- define "phpprof.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "phpprof.selector" . }}
{{- end }}

{{- define "phpprof.selector" -}}
app.kubernetes.io/name: phpprof
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "phpprof.pathStyle" -}}
{{- if kindIs "bool" .Values.store.pathStyle }}{{ .Values.store.pathStyle }}{{ else }}{{ ne .Values.store.endpoint "" }}{{ end }}
{{- end }}

{{- /* Whether requests are accepted although the store overwrites objects. Without a value, a release keeps what it has; one from before this
setting, whose store may be such a store, works as before. */ -}}
{{- define "phpprof.allowOverwrite" -}}
{{- if kindIs "bool" .Values.store.allowOverwrite }}{{ .Values.store.allowOverwrite }}
{{- else }}
{{- $running := lookup "apps/v1" "Deployment" .Release.Namespace (include "phpprof.name" .) }}
{{- $allowed := ternary "true" "false" (and .Release.IsUpgrade (not (empty $running))) }}
{{- range $container := dig "spec" "template" "spec" "containers" list ($running | default dict) }}
{{- range $arg := $container.args | default list }}
{{- if hasPrefix "--store-allow-overwrite=" $arg }}{{ $allowed = trimPrefix "--store-allow-overwrite=" $arg }}{{ end }}
{{- end }}
{{- end }}
{{- $allowed }}
{{- end }}
{{- end }}

{{- /* The full name of one of the chart's images. If there is a digest, it alone decides what runs; the tag before it is for people. */ -}}
{{- define "phpprof.image" -}}
{{- $root := index . 0 }}
{{- $image := index $root.Values.images (index . 1) }}
{{- if kindIs "string" $image }}{{ $image }}
{{- else if and $image.digest $image.tag }}{{ $image.repository }}:{{ $image.tag }}@{{ $image.digest }}
{{- else if $image.digest }}{{ $image.repository }}@{{ $image.digest }}
{{- else }}{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* The folder of a file:// store, which is a volume; empty for others. */ -}}
{{- define "phpprof.folder" -}}
{{- if hasPrefix "file://" .Values.store.url }}{{ trimPrefix "file://" .Values.store.url }}{{ end }}
{{- end }}

{{- /* The URL of the results for people; empty if they need a port-forward or the API server's proxy. */ -}}
{{- define "phpprof.resultsURL" -}}
{{- if .Values.results.url }}{{ .Values.results.url }}
{{- else if .Values.results.ingress.host }}{{ ternary "https" "http" (ne .Values.results.ingress.tlsSecret "") }}://{{ .Values.results.ingress.host }}
{{- end }}
{{- end }}

{{- /* Refuses settings that would do nothing, or the opposite of what was meant. */ -}}
{{- define "phpprof.checkStore" -}}
{{- with .Values.store }}
{{- if and (hasPrefix "http://" .endpoint) (not .allowInsecure) }}
{{- fail (printf "store: endpoint %s is not encrypted; use https://, or set store.allowInsecure=true on a network that you trust" .endpoint) }}
{{- end }}
{{- if and .allowInsecure (not (hasPrefix "http://" .endpoint)) }}
{{- fail "store: allowInsecure needs an endpoint that begins with http://" }}
{{- end }}
{{- if and .azureAccount (not (hasPrefix "az://" .url)) }}
{{- fail "store: azureAccount needs a store.url that begins with az://" }}
{{- end }}
{{- if and (or .encryption.algorithm .encryption.kmsKey .checksum .directChecksum) (not (hasPrefix "s3://" .url)) }}
{{- fail "store: encryption, checksum and directChecksum need a store.url that begins with s3://" }}
{{- end }}
{{- if and .encryption.kmsKey (not (hasPrefix "aws:kms" .encryption.algorithm)) }}
{{- fail "store: encryption.kmsKey needs encryption.algorithm aws:kms or aws:kms:dsse" }}
{{- end }}
{{- if and .azureAccount .credentialsSecret }}
{{- fail "store: azureAccount and credentialsSecret both name the account; leave one out" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Refuses settings that would do nothing. */ -}}
{{- define "phpprof.checkOutlets" -}}
{{- with .Values.grafana }}
{{- if and (or .pyroscopeDatasource .annotations.tokenSecret) (not .url) }}
{{- fail "grafana: pyroscopeDatasource and annotations need grafana.url" }}
{{- end }}
{{- if and .annotations.dashboardUID (not .annotations.tokenSecret) }}
{{- fail "grafana: annotations.dashboardUID needs annotations.tokenSecret" }}
{{- end }}
{{- if and .pyroscopeDatasource (not $.Values.pyroscope.url) }}
{{- fail "grafana: pyroscopeDatasource needs pyroscope.url; without it, the links show no profile" }}
{{- end }}
{{- end }}
{{- with .Values.pyroscope }}
{{- range list "service_name" "namespace" "workload" "pod" "container" "profile_request" }}
{{- if hasKey $.Values.pyroscope.labels . }}
{{- fail (printf "pyroscope: labels.%s: every series has this label already" .) }}
{{- end }}
{{- end }}
{{- if and (or .tenant .credentialsSecret .labels .requestLabel) (not .url) }}
{{- fail "pyroscope: tenant, credentialsSecret, labels and requestLabel need pyroscope.url" }}
{{- end }}
{{- end }}
{{- with .Values.export.otlp }}
{{- range list "service.name" "service.namespace" "service.instance.id" "k8s.namespace.name" "k8s.pod.name" "k8s.pod.uid" "k8s.container.name" "k8s.node.name" "k8s.deployment.name" "k8s.statefulset.name" "k8s.daemonset.name" "k8s.replicaset.name" "k8s.job.name" "container.id" "process.runtime.name" "process.runtime.version" "telemetry.sdk.name" "telemetry.sdk.language" "telemetry.sdk.version" }}
{{- if hasKey $.Values.export.otlp.resourceAttributes . }}
{{- fail (printf "export.otlp: resourceAttributes: every resource has the attribute %s already" .) }}
{{- end }}
{{- end }}
{{- if and (or .headersSecret .resourceAttributes) (not .endpoint) }}
{{- fail "export.otlp: headersSecret and resourceAttributes need export.otlp.endpoint" }}
{{- end }}
{{- if and (eq .protocol "grpc") (not (regexMatch "^(https?://[^/]+/?)?$" .endpoint)) }}
{{- fail "export.otlp: with protocol grpc, endpoint must not have a path" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Images that the operator may run, as JSON: this release's, the previous release's (its operator still runs while it is replaced), and the administrator's. */ -}}
{{- define "phpprof.samplerImages" -}}
{{- $images := list (include "phpprof.image" (list . "sampler")) }}
{{- $running := lookup "apps/v1" "Deployment" .Release.Namespace (include "phpprof.name" .) }}
{{- range $container := dig "spec" "template" "spec" "containers" list ($running | default dict) }}
{{- range $arg := $container.args | default list }}
{{- if hasPrefix "--sampler-image=" $arg }}{{ $images = append $images (trimPrefix "--sampler-image=" $arg) }}{{ end }}
{{- end }}
{{- end }}
{{- concat $images .Values.policies.samplerImages | uniq | toJson }}
{{- end }}

{{- /* Where the release's policies apply: everywhere, or in the namespaces where the operator has rights. */ -}}
{{- define "phpprof.policyNamespaces" -}}
{{- with .Values.rbac.namespaces -}}
matchResources:
  namespaceSelector:
    matchExpressions:
      - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
{{- end }}
{{- end }}

{{- /* Builds a Grafana dashboard from titles and queries: two panels in a row, and in each one line per legend. Above them are links to the other
dashboards, and the times of profiles if grafana.annotations marks them. */ -}}
{{- define "phpprof.dashboard" -}}
{{- $source := dict "type" "prometheus" "uid" "${datasource}" }}
{{- $panels := list }}
{{- range $index, $panel := .panels }}
{{- $targets := list }}
{{- range $legend, $query := $panel.queries }}
{{- $targets = append $targets (dict "refId" (printf "q%d" (len $targets)) "datasource" $source "expr" $query "legendFormat" $legend) }}
{{- end }}
{{- $place := dict "w" 12 "h" 8 "x" (mul 12 (mod $index 2)) "y" (mul 8 (div $index 2)) }}
{{- $field := dict "defaults" (dict "unit" ($panel.unit | default "short") "min" 0) "overrides" list }}
{{- $panels = append $panels (dict "id" (add1 $index) "type" "timeseries" "title" $panel.title "datasource" $source "gridPos" $place "fieldConfig" $field "targets" $targets) }}
{{- end }}
{{- $variable := dict "name" "datasource" "type" "datasource" "query" "prometheus" "label" "Data source" }}
{{- $links := list (dict "title" "phpprof" "type" "dashboards" "tags" (list "phpprof") "icon" "" "tooltip" "" "url" "" "asDropdown" false "targetBlank" false "includeVars" true "keepTime" true) }}
{{- $marks := dict "type" "tags" "tags" (list "phpprof") "limit" 100 "matchAny" false }}
{{- $profiles := dict "name" "Profiles" "datasource" (dict "type" "grafana" "uid" "-- Grafana --") "enable" true "hide" false "iconColor" "orange" "target" $marks }}
{{- dict "title" .title "uid" .uid "tags" (list "phpprof") "links" $links "annotations" (dict "list" (list $profiles)) "schemaVersion" 39 "refresh" "1m" "time" (dict "from" "now-6h" "to" "now") "templating" (dict "list" (list $variable)) "panels" $panels | toJson }}
{{- end }}

{{- /* Users whose requests may have resident samplers. Only a policy ensures who created a request, so without policies there are none. */ -}}
{{- define "phpprof.residentUsers" -}}
{{- $users := .Values.resident.users }}
{{- if and $users (not .Values.policies.enabled) }}
{{- fail "resident.users needs policies.enabled: without it, anybody could pretend to be one of them" }}
{{- end }}
{{- if ge (int .Values.resident.askSeconds) (int .Values.resident.leaseSeconds) }}
{{- fail "resident.askSeconds must be less than resident.leaseSeconds: a sampler that gets no answer within its lease ends" }}
{{- end }}
{{- if gt (int .Values.resident.askSeconds) (int .Values.startSlackSeconds) }}
{{- fail "resident.askSeconds must not be more than startSlackSeconds: a run that begins later fails" }}
{{- end }}
{{- if and .Values.schedules .Values.resident.schedules .Values.policies.enabled }}
{{- $users = append $users (printf "system:serviceaccount:%s:%s" .Release.Namespace (include "phpprof.scheduleAccount" .)) }}
{{- end }}
{{- $users | toJson }}
{{- end }}

{{- define "phpprof.testName" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}-test
{{- end }}

{{- define "phpprof.testLabels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/name: phpprof
app.kubernetes.io/component: test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* An object of `helm test`, with its place in the order. What failed stays until the next test, so that people can look at it; the
account and its rights did not fail, and go. */ -}}
{{- define "phpprof.testHook" -}}
helm.sh/hook: test
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
