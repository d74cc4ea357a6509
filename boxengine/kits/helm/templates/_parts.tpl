{{- define "boxengine.labels" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- define "boxengine.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "boxengine.files" -}}
{{- with .Values.configuration }}
outbox.yml: |
  {{- . | nindent 2 }}
{{- end }}
deploy.yml: |
  {{- .Values.overlay | toYaml | nindent 2 }}
{{- end }}

{{- define "boxengine.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false # they would add environment variables of others' making
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.pod }}
{{ toYaml . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001 # may read secretFiles
  seccompProfile: {type: RuntimeDefault}
volumes:
  - name: configuration
    configMap: {name: {{ .configuration }}}
  - name: tmp # --processes keeps its counters there
    emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- range $number, $files := .root.Values.secretFiles }}
  - name: secret-{{ $number }}
    secret: {secretName: {{ $files.secret }}, defaultMode: 288} # 0440: PostgreSQL's client refuses a key that all may read
{{- end }}
{{- end }}

{{- define "boxengine.container" -}}
{{- with .root }}
image: {{ printf "%s:%s" .Values.image.repository .Values.image.tag | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - name: BOXENGINE_CONFIG
    value: {{ ternary "/etc/boxengine/outbox.yml" "outbox.yml" (not (empty .Values.configuration)) }}:/etc/boxengine/deploy.yml
{{- end }}
envFrom:
  - secretRef: {name: {{ .secret }}}
volumeMounts:
  - {name: configuration, mountPath: /etc/boxengine, readOnly: true}
  - {name: tmp, mountPath: /tmp}
{{- range $number, $files := .root.Values.secretFiles }}
  - {name: secret-{{ $number }}, mountPath: {{ $files.path | quote }}, readOnly: true}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "boxengine.checksum" -}}
checksum/configuration: {{ include "boxengine.files" . | sha256sum }}
{{- end }}
