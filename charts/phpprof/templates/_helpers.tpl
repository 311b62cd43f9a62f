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

{{- /* The folder of a file:// store, which is a volume; empty for others. */ -}}
{{- define "phpprof.folder" -}}
{{- if hasPrefix "file://" .Values.store.url }}{{ trimPrefix "file://" .Values.store.url }}{{ end }}
{{- end }}

{{- /* Where people reach the results; empty where only a port-forward and the API server's proxy do. */ -}}
{{- define "phpprof.resultsURL" -}}
{{- if .Values.results.url }}{{ .Values.results.url }}
{{- else if .Values.results.ingress.host }}{{ ternary "https" "http" (ne .Values.results.ingress.tlsSecret "") }}://{{ .Values.results.ingress.host }}
{{- end }}
{{- end }}
