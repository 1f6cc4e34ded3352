{{/*
Every public template takes the root context of the chart that includes it: your chart's own `.`, or, when the
dependency has an alias, `.Subcharts.<alias>`. The values are those of the tenure chart in either case.
*/}}

{{/* Refuses a root without the values of this chart. Renders nothing. */}}
{{- define "tenure.checkRoot" -}}
{{- $own := and . (or (get (.Subcharts | default dict) "tenure") .) -}}
{{- if not (and $own $own.Values (hasKey $own.Values "timings")) -}}
{{- fail "the templates of tenure want the root of a chart with a dependency called tenure, or .Subcharts.<alias>" -}}
{{- end -}}
{{- end -}}

{{/* Name of the Lease. */}}
{{- define "tenure.leaseName" -}}
{{- include "tenure.checkRoot" . -}}
{{- $ := get (.Subcharts | default dict) "tenure" | default . -}}
{{- $name := tpl $.Values.lease.name $ -}}
{{- if or (gt (len $name) 246) (not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" $name)) -}}
{{- fail (printf "lease.name=%q: must be lower-case letters, digits, '-' and '.', at most 246 of them" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* Name of the Role, the RoleBinding and the rest: one set for each Lease. */}}
{{- define "tenure.fullname" -}}
{{- include "tenure.leaseName" . }}-tenure
{{- end -}}

{{/* Service account that your pods must run under. */}}
{{- define "tenure.serviceAccountName" -}}
{{- include "tenure.checkRoot" . -}}
{{- $ := get (.Subcharts | default dict) "tenure" | default . -}}
{{- $name := tpl $.Values.serviceAccount.name $ -}}
{{- if not (or $name $.Values.serviceAccount.create) -}}
{{- fail "serviceAccount.create=false: needs serviceAccount.name, the service account of your pods" -}}
{{- end -}}
{{- if and $name (or (gt (len $name) 253) (not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" $name))) -}}
{{- fail (printf "serviceAccount.name=%q: must be lower-case letters, digits, '-' and '.', at most 253 of them" $name) -}}
{{- end -}}
{{- $name | default (include "tenure.fullname" $) -}}
{{- end -}}

{{/* Pull secrets, a list for your pod spec. Each is given as its name or, as other charts want it, as {name: …}. */}}
{{- define "tenure.imagePullSecrets" -}}
{{- include "tenure.checkRoot" . -}}
{{- $ := get (.Subcharts | default dict) "tenure" | default . -}}
{{- $names := list -}}
{{- range concat ($.Values.global.imagePullSecrets | default list) ($.Values.image.pullSecrets | default list) -}}
{{- if kindIs "map" . }}{{ $names = append $names .name }}{{ else }}{{ $names = append $names . }}{{ end -}}
{{- end -}}
{{- range uniq $names }}
- name: {{ . | quote }}
{{- end -}}
{{- end -}}

{{- define "tenure.labels" -}}
{{- include "tenure.labelsWith" (list . dict) -}}
{{- end -}}

{{/* (list root labels): the recommended labels, commonLabels and these, each key once, the later one winning. */}}
{{- define "tenure.labelsWith" -}}
{{- $ := index . 0 -}}
{{- $own := dict
      "helm.sh/chart" (printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
      "app.kubernetes.io/name" "tenure"
      "app.kubernetes.io/instance" $.Release.Name
      "app.kubernetes.io/version" $.Chart.AppVersion
      "app.kubernetes.io/component" "leader-election"
      "app.kubernetes.io/managed-by" $.Release.Service -}}
{{- mergeOverwrite $own ($.Values.commonLabels | default dict) (index . 1 | default dict) | toYaml -}}
{{- end -}}

{{/* (list root image default-tag): a reference by digest, else by tag. */}}
{{- define "tenure.imageRef" -}}
{{- $image := index . 1 -}}
{{- $registry := (index . 0).Values.global.imageRegistry | default $image.registry -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default (index . 2) }}{{ end -}}
{{- end -}}
