{{- define "phpprof.scheduleAccount" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}-schedules
{{- end }}

{{- define "phpprof.scheduleLabels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/name: phpprof
app.kubernetes.io/component: schedule
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Refuses schedules that would fail later, in a Job that nobody looks at. */ -}}
{{- define "phpprof.checkSchedule" -}}
{{- $schedule := .schedule }}
{{- $limits := .root.Values.limits }}
{{- $here := printf "schedules: %s" $schedule.name }}
{{- if has $schedule.name .others }}
{{- fail (printf "%s: two schedules have this name; give each its own" $here) }}
{{- end }}
{{- $name := printf "%s-%s" .root.Release.Name $schedule.name }}
{{- if gt (len $name) 52 }}
{{- fail (printf "%s: the CronJob would be called %s, and a CronJob's name has at most 52 characters; shorten the schedule's name" $here $name) }}
{{- end }}
{{- if not (regexMatch "^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|@every \\S+|([0-9A-Za-z*,/?-]+ +){4}[0-9A-Za-z*,/?-]+)$" $schedule.schedule) }}
{{- fail (printf "%s: schedule %q must have the five fields of cron, for instance \"*/10 * * * *\"; the time zone goes into timeZone" $here $schedule.schedule) }}
{{- end }}
{{- $crd := .root.Files.Get "files/profilerequest.yaml" | fromYaml }}
{{- $spec := (index $crd.spec.versions 0).schema.openAPIV3Schema.properties.spec }}
{{- include "phpprof.checkFields" (dict "path" (printf "%s: request" $here) "value" $schedule.request "schema" $spec) }}
{{- $target := $schedule.request.target }}
{{- $ways := 0 }}
{{- range list "podName" "selector" "workloadRef" }}
{{- if hasKey $target . }}{{ $ways = add1 $ways }}{{ end }}
{{- end }}
{{- if ne (int $ways) 1 }}
{{- fail (printf "%s: request.target needs exactly one of podName, selector and workloadRef" $here) }}
{{- end }}
{{- $mode := default "Profile" $schedule.request.mode }}
{{- if or (eq $mode "Heap") (and (eq $mode "Snapshot") $schedule.request.heap) }}
{{- fail (printf "%s: the account of schedules has no right to look into heaps, as request.mode Heap and snapshots with heap do; use kubectl phpprof heap" $here) }}
{{- end }}
{{- range $field := list "durationSeconds" "samplesPerSecond" }}
{{- $most := int (index $limits $field) }}
{{- $asked := int (index $spec.properties $field).default }}
{{- if hasKey $schedule.request $field }}{{ $asked = int (index $schedule.request $field) }}{{ end }}
{{- if or (lt $asked 1) (gt $asked $most) }}
{{- fail (printf "%s: request.%s is %d, but must be from 1 to %d, the chart's limits.%s" $here $field $asked $most $field) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Checks fields and the types of their values against the CustomResourceDefinition. */ -}}
{{- define "phpprof.checkFields" -}}
{{- $path := .path }}
{{- $schema := .schema }}
{{- $kind := kindOf .value }}
{{- if eq $schema.type "object" }}
{{- if ne $kind "map" }}
{{- fail (printf "%s must be an object" $path) }}
{{- end }}
{{- if hasKey $schema "properties" }}
{{- range $key, $value := .value }}
{{- if not (hasKey $schema.properties $key) }}
{{- fail (printf "%s has no field %s; it may have %s" $path $key (keys $schema.properties | sortAlpha | join ", ")) }}
{{- end }}
{{- include "phpprof.checkFields" (dict "path" (printf "%s.%s" $path $key) "value" $value "schema" (index $schema.properties $key)) }}
{{- end }}
{{- $value := .value }}
{{- range $schema.required }}
{{- if not (hasKey $value .) }}
{{- fail (printf "%s needs the field %s" $path .) }}
{{- end }}
{{- end }}
{{- end }}
{{- else if and (eq $schema.type "integer") (not (has $kind (list "int" "int64" "float64"))) }}
{{- fail (printf "%s must be a whole number" $path) }}
{{- else if and (eq $schema.type "boolean") (ne $kind "bool") }}
{{- fail (printf "%s must be true or false" $path) }}
{{- else if and (eq $schema.type "string") (ne $kind "string") }}
{{- fail (printf "%s must be a string" $path) }}
{{- else if and $schema.enum (not (has .value $schema.enum)) }}
{{- fail (printf "%s must be one of %s" $path (join ", " $schema.enum)) }}
{{- end }}
{{- end }}
