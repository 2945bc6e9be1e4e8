{{- define "doorward.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "doorward.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "doorward.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "doorward.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "doorward.selector" -}}
app.kubernetes.io/name: {{ include "doorward.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "doorward.labels" -}}
{{ include "doorward.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "doorward.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "doorward.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "doorward.secret" -}}
{{- default (include "doorward.fullname" .) .Values.existingSecret -}}
{{- end -}}

{{/* The main file: what the values say, and the listener for TLS. */}}
{{- define "doorward.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if .Values.tls.secretName -}}
{{- $tls := dict "listen" (list "0.0.0.0:8443") "certificate" "/etc/doorward/tls/tls.crt" "key" "/etc/doorward/tls/tls.key" -}}
{{- $config = mergeOverwrite (dict "proxy" (dict "tls" $tls)) $config -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Seconds after which a node that ends is killed. */}}
{{- define "doorward.grace" -}}
{{- $proxy := default (dict) .Values.config.proxy -}}
{{- add .Values.preStopSeconds (int (default 30 $proxy.drain_seconds)) 15 -}}
{{- end -}}
