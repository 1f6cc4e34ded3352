{{/*
The sidecar, one item of a list: of initContainers in native mode (before init containers of yours that need it),
of containers in classic mode.
*/}}
{{- define "tenure.sidecar" -}}
{{- include "tenure.checkRoot" . -}}
{{- $ := get (.Subcharts | default dict) "tenure" | default . -}}
{{- include "tenure.checkValues" $ -}}
{{- $v := $.Values -}}
- name: tenure
  image: {{ include "tenure.imageRef" (list $ $v.image $.Chart.AppVersion) | quote }}
  imagePullPolicy: {{ $v.image.pullPolicy }}
  {{- if eq $v.mode "native" }}
  restartPolicy: Always
  {{- end }}
  args:
    - sidecar
    - --lease-name={{ include "tenure.leaseName" $ }}
    - --lease-duration={{ $v.timings.leaseDuration }}
    - --renew-deadline={{ $v.timings.renewDeadline }}
    - --retry-period={{ $v.timings.retryPeriod }}
    - --drain-timeout={{ $v.drainTimeout }}
    - --on-app-exit={{ $v.onAppExit }}
    {{- with $v.maxValid }}
    - --max-valid={{ . }}
    {{- end }}
    - --listen=127.0.0.1:{{ $v.ports.api }},[::1]:{{ $v.ports.api }}
    - --admin-listen=[::]:{{ $v.ports.admin }}
    {{- if $v.socket.enabled }}
    - --socket=/run/tenure/tenure.sock
    - --socket-mode={{ $v.socket.mode }}
    {{- end }}
    - --log-format={{ $v.log.format }}
    - {{ printf "--log=%s" $v.log.filter | quote }}
    {{- with $v.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  env:
    - name: POD_NAME
      valueFrom:
        fieldRef:
          fieldPath: metadata.name
    - name: POD_UID
      valueFrom:
        fieldRef:
          fieldPath: metadata.uid
    {{- with $v.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - name: tenure
      containerPort: {{ int $v.ports.api }}
      protocol: TCP
    - name: tenure-metrics
      containerPort: {{ int $v.ports.admin }}
      protocol: TCP
  startupProbe:
    httpGet:
      path: /livez
      port: {{ $v.ports.admin }}
    periodSeconds: 1
    failureThreshold: 60
  livenessProbe:
    httpGet:
      path: /livez
      port: {{ $v.ports.admin }}
    periodSeconds: 10
    timeoutSeconds: 3
    failureThreshold: 3
  {{- if $v.probes.readiness.enabled }}
  readinessProbe:
    httpGet:
      path: /readyz
      port: {{ $v.ports.admin }}
    periodSeconds: 2
    timeoutSeconds: 3
    failureThreshold: 3
  {{- end }}
  resources:
    {{- toYaml $v.resources | nindent 4 }}
  securityContext:
    {{- toYaml $v.securityContext | nindent 4 }}
  volumeMounts:
    - name: tenure-token
      mountPath: /var/run/secrets/kubernetes.io/serviceaccount
      readOnly: true
    {{- if $v.socket.enabled }}
    - name: tenure-socket
      mountPath: /run/tenure
    {{- end }}
    {{- with $v.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* Volumes of the pod. The token is mounted into the sidecar alone. */}}
{{- define "tenure.volumes" -}}
{{- include "tenure.checkRoot" . -}}
{{- $ := get (.Subcharts | default dict) "tenure" | default . -}}
- name: tenure-token
  projected:
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
{{- if $.Values.socket.enabled }}
- name: tenure-socket
  emptyDir: {}
{{- end }}
{{- end -}}

{{/* Variables of the app's container: where the sidecar answers. */}}
{{- define "tenure.appEnv" -}}
{{- include "tenure.checkRoot" . -}}
{{- $ := get (.Subcharts | default dict) "tenure" | default . -}}
- name: TENURE_URL
  value: {{ if $.Values.socket.enabled }}unix:/run/tenure/tenure.sock{{ else }}http://localhost:{{ $.Values.ports.api }}{{ end }}
{{- end -}}

{{/* Mounts of the app's container: the socket's folder, where there is one. */}}
{{- define "tenure.appVolumeMounts" -}}
{{- include "tenure.checkRoot" . -}}
{{- $ := get (.Subcharts | default dict) "tenure" | default . -}}
{{- if $.Values.socket.enabled -}}
- name: tenure-socket
  mountPath: /run/tenure
{{- end -}}
{{- end -}}

{{/*
Annotations of the pod in a mesh: probes and metrics come in past the proxy, and the way to the API server leads
past it, because the proxy starts later than the sidecar or ends earlier.
*/}}
{{- define "tenure.podAnnotations" -}}
{{- include "tenure.checkRoot" . -}}
{{- $ := get (.Subcharts | default dict) "tenure" | default . -}}
{{- $cidr := $.Values.meshApiServerCidr -}}
{{- if eq $.Values.mesh "istio" -}}
traffic.sidecar.istio.io/excludeInboundPorts: {{ $.Values.ports.admin | quote }}
{{ if $cidr }}traffic.sidecar.istio.io/excludeOutboundIPRanges: {{ $cidr | quote }}
{{- else }}traffic.sidecar.istio.io/excludeOutboundPorts: "443"
{{- end }}
{{- else if eq $.Values.mesh "linkerd" -}}
config.linkerd.io/skip-inbound-ports: {{ $.Values.ports.admin | quote }}
{{ if $cidr }}config.linkerd.io/skip-subnets: {{ $cidr | quote }}
{{- else }}config.linkerd.io/skip-outbound-ports: "443"
{{- end }}
{{- end -}}
{{- end -}}
