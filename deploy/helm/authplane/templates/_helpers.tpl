{{- define "authplane.labels" -}}
app.kubernetes.io/name: authplane
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- end }}

{{- define "authplane.selector" -}}
app.kubernetes.io/name: authplane
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "authplane.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "authplane.host" -}}
{{ .root.Release.Name }}-{{ .component }}.{{ .root.Release.Namespace }}.svc
{{- end }}

{{/* What every Pod has: the security standard "restricted", and a spread over nodes and zones. */}}
{{- define "authplane.pod" -}}
serviceAccountName: {{ .root.Release.Name }}-{{ .component }}
automountServiceAccountToken: {{ ne .component "envoy" }}
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- if eq .component "envoy" }}
  # Listeners of Gateway objects may have ports below 1024.
  sysctls:
  - name: net.ipv4.ip_unprivileged_port_start
    value: "0"
{{- end }}
{{- end }}

{{- define "authplane.placement" -}}
{{- with .values.nodeSelector }}
nodeSelector:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
{{ toYaml . }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if not .daemon }}
topologySpreadConstraints:
{{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
{{ include "authplane.selector" $ | indent 6 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "authplane.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "authplane.env" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: HOME
  value: /tmp
{{- end }}

{{- define "authplane.probes" -}}
startupProbe:
  httpGet:
    path: /healthz
    port: metrics
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet:
    path: /healthz
    port: metrics
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet:
    path: /readyz
    port: metrics
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* Which objects to read, as options. */}}
{{- define "authplane.watch" -}}
- --kubernetes
{{- with .Values.watch.namespaces }}
- --namespaces={{ join "," (append . $.Release.Namespace | uniq) }}
{{- end }}
{{- end }}

{{- define "authplane.scaler" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .root.Release.Name }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
{{ include "authplane.labels" . | indent 4 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ .root.Release.Name }}-{{ .component }}
  minReplicas: {{ .values.autoscaling.minReplicas }}
  maxReplicas: {{ .values.autoscaling.maxReplicas }}
  metrics:
  - type: Resource
    resource:
      name: cpu
      target:
        type: Utilization
        averageUtilization: {{ .values.autoscaling.cpu }}
{{- with .values.autoscaling.metrics }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- end }}

{{- define "authplane.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .root.Release.Name }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
{{ include "authplane.labels" . | indent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
{{ include "authplane.selector" . | indent 6 }}
{{- end }}

{{- define "authplane.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .root.Release.Name }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
{{ include "authplane.labels" . | indent 4 }}
{{- with .root.Values.serviceAccountAnnotations }}
  annotations:
{{ toYaml . | indent 4 }}
{{- end }}
automountServiceAccountToken: false
{{- end }}

{{- define "authplane.peer" }}
- podSelector:
    matchLabels:
{{ include "authplane.selector" . | indent 6 }}
{{- end }}

{{- define "authplane.dns" }}
- ports:
  - {protocol: UDP, port: 53}
  - {protocol: TCP, port: 53}
{{- end }}

{{- define "authplane.metrics" }}
{{- if .root.Values.networkPolicy.metricsFrom }}
- from:
{{ toYaml .root.Values.networkPolicy.metricsFrom | indent 2 }}
{{- else }}
- from:
  - namespaceSelector: {}
{{- end }}
  ports:
  - {protocol: TCP, port: {{ .port }}}
{{- end }}

{{- define "authplane.api" }}
- to:
{{- range .Values.networkPolicy.apiServer.cidrs }}
  - ipBlock:
      cidr: {{ . | quote }}
{{- end }}
  ports:
{{- range .Values.networkPolicy.apiServer.ports }}
  - {protocol: TCP, port: {{ . }}}
{{- end }}
{{- end }}

{{- define "authplane.certificates" }}
{{- $part := dict "root" . "component" "certificates" }}
metadata:
  labels:
{{ include "authplane.labels" $part | indent 4 }}
spec:
{{ include "authplane.pod" $part | indent 2 }}
  restartPolicy: OnFailure
  containers:
  - name: certificates
    image: {{ include "authplane.image" . | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    command: [authplane, certificates]
    args:
    - --namespace={{ .Release.Namespace }}
    - --ca={{ .Release.Name }}-ca
    - --days={{ .Values.tls.days }}
    - {{ .Release.Name }}-control-tls={{ include "authplane.host" (dict "root" . "component" "control") }}
    - {{ .Release.Name }}-policy-tls={{ include "authplane.host" (dict "root" . "component" "policy") }}
    - {{ .Release.Name }}-envoy-tls={{ .Release.Name }}-envoy.{{ .Release.Namespace }}
    env:
{{ include "authplane.env" . | indent 4 }}
    resources:
      requests: {cpu: 50m, memory: 96Mi}
      limits: {memory: 256Mi}
{{ include "authplane.container" . | indent 4 }}
    volumeMounts:
    - name: tmp
      mountPath: /tmp
  volumes:
  - name: tmp
    emptyDir:
      sizeLimit: 16Mi
{{- end }}
