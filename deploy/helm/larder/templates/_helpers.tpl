{{- define "larder.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "larder.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "larder.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "larder.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "larder.gateway.name" -}}
{{- printf "%s-gateway" (include "larder.fullname" .) -}}
{{- end }}

{{- define "larder.kv.name" -}}
{{- printf "%s-kv" (include "larder.fullname" .) -}}
{{- end }}

{{- /* The Service that gives each pod of kv a name. */ -}}
{{- define "larder.kv.headless" -}}
{{- printf "%s-pods" (include "larder.kv.name" .) -}}
{{- end }}

{{- define "larder.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "larder.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "larder.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end }}

{{- /* Labels that choose pods: list of the root and the component. */ -}}
{{- define "larder.selectorLabels" -}}
app.kubernetes.io/name: {{ include "larder.name" (index . 0) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "larder.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{ include "larder.selectorLabels" . }}
{{- end }}

{{- /* What pods of both kinds have in common: list of the root, the component and its values. */ -}}
{{- define "larder.podMetadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- include "larder.selectorLabels" (list $root (index . 1)) | nindent 2 }}
  {{- with $root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  # Replaces pods when the configuration changes.
  checksum/config: {{ include (print $root.Template.BasePath "/" (index . 1) "-config.yaml") $root | sha256sum }}
  {{- with $root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "larder.podSpec" -}}
{{- $root := index . 0 -}}
{{- $part := index . 2 -}}
serviceAccountName: {{ include "larder.serviceAccountName" $root }}
automountServiceAccountToken: {{ $root.Values.serviceAccount.automount }}
# Kubernetes would set variables for each Service of the namespace, such as LARDER_KV_PORT, that look like settings of Larder.
enableServiceLinks: false
terminationGracePeriodSeconds: {{ $part.terminationGracePeriodSeconds }}
securityContext:
  {{- toYaml $root.Values.podSecurityContext | nindent 2 }}
  {{- with $root.Values.sysctls }}
  sysctls:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $selector := include "larder.selectorLabels" (list $root (index . 1)) }}
{{- with $part.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{- toYaml . | nindent 4 }}
    {{- if not .labelSelector }}
    labelSelector:
      matchLabels:
        {{- $selector | nindent 8 }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "larder.container" -}}
{{- $root := index . 0 -}}
{{- $part := index . 2 -}}
image: {{ include "larder.image" $root | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext:
  {{- toYaml $root.Values.securityContext | nindent 2 }}
startupProbe:
  {{- toYaml $part.startupProbe | nindent 2 }}
livenessProbe:
  {{- toYaml $part.livenessProbe | nindent 2 }}
readinessProbe:
  {{- toYaml $part.readinessProbe | nindent 2 }}
{{- with $part.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
