{{- define "weir.name" -}}
{{- if contains "weir" .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else -}}
{{ printf "%s-weir" .Release.Name | trunc 63 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "weir.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "weir.name" .) .Values.serviceAccount.name }}{{ else -}}
{{ default "default" .Values.serviceAccount.name }}{{ end -}}
{{- end -}}

{{- define "weir.check" -}}
{{- $v := .Values -}}
{{- if not $v.image.repository }}{{ fail "set image.repository to that of weir's image" }}{{ end -}}
{{- if not (or $v.store.url $v.store.existingSecret.name) -}}
{{ fail "set store.url or store.existingSecret.name: weir's replicas share a store" }}{{ end -}}
{{- if and $v.store.url $v.store.existingSecret.name -}}
{{ fail "set only one of store.url and store.existingSecret.name" }}{{ end -}}
{{- if regexMatch "^(disk|memory):" $v.store.url -}}
{{ fail "store.url must be that of Redis or DynamoDB: one process alone uses a store on disk or in memory" }}{{ end -}}
{{- if regexMatch "^[^?]*:[^@/]*@" (trimPrefix "//" (regexReplaceAll "^[^:]*:" $v.store.url "")) -}}
{{ fail "store.url has a password: put the URL into store.existingSecret, or the password into redisPassword" }}{{ end -}}
{{- if not (or $v.insecure (and $v.auth.existingSecret.name $v.tls.existingSecret.name)) -}}
{{ fail "set auth.existingSecret.name and tls.existingSecret.name, or insecure: true" }}{{ end -}}
{{- end -}}
