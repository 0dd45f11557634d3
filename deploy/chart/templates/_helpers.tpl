{{- /* The name of all objects. Longer names make Pod names that are no DNS labels. */ -}}
{{- define "flotilla.name" -}}
{{- $name := .Values.fullnameOverride | default (contains "flotilla" .Release.Name | ternary .Release.Name (printf "%s-flotilla" .Release.Name)) }}
{{- if gt (len $name) 52 }}{{ fail (printf "fullnameOverride %q: must have at most 52 characters" $name) }}{{ end }}
{{- $name }}
{{- end }}

{{- /* What selects the members of this release, or its shadow. */ -}}
{{- define "flotilla.selector" -}}
app.kubernetes.io/name: {{ ternary "flotilla-shadow" "flotilla" .Values.shadow.enabled }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "flotilla.labels" -}}
{{- $own := include "flotilla.selector" . | fromYaml }}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion }}
{{- $_ := set $own "app.kubernetes.io/component" "controller-manager" }}
{{- $_ := set $own "app.kubernetes.io/part-of" "flotilla" }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service }}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") }}
{{- toYaml (merge $own .Values.labels) }}
{{- end }}

{{- /* metadata of an object: (dict "root" $ "suffix" "" "namespace" "" "annotations" dict). */ -}}
{{- define "flotilla.metadata" -}}
name: {{ include "flotilla.name" .root | quote }}
{{- with .namespace }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- include "flotilla.labels" .root | nindent 2 }}
{{- with merge dict (.annotations | default dict) .root.Values.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "flotilla.hosted" -}}
{{- if eq .Values.mode "hosted" }}true
{{- else if ne .Values.mode "self-hosted" }}{{ fail (printf "mode %q: must be hosted or self-hosted" .Values.mode) }}
{{- else if ne .Release.Namespace "kube-system" }}{{ fail (printf "namespace %q: must be kube-system in mode self-hosted" .Release.Namespace) }}
{{- end }}
{{- end }}

{{- /* Kubernetes' own rule: a controller manager is not newer than any API server, and at most one minor version older. */ -}}
{{- define "flotilla.skew" -}}
{{- if and .Values.checkKubeVersion (not (include "flotilla.hosted" .)) }}
{{- $version := .Values.image.tag | default .Chart.AppVersion }}
{{- if not (regexMatch "^v?1\\.[0-9]+" $version) }}{{ $version = .Chart.AppVersion }}{{ end }}
{{- $fleet := regexFind "^v?1\\.[0-9]+" $version | trimPrefix "v" | trimPrefix "1." | int }}
{{- $cluster := regexFind "^v?1\\.[0-9]+" .Capabilities.KubeVersion.Version | trimPrefix "v" | trimPrefix "1." | int }}
{{- if not (has $cluster (list $fleet (add1 $fleet | int))) }}
{{- fail (printf "Kubernetes %s: a fleet of version %s must run with API servers of 1.%d or 1.%d (`helm template` knows no cluster: give it --kube-version; checkKubeVersion=false skips this)" .Capabilities.KubeVersion.Version $version $fleet (add1 $fleet)) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "flotilla.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- /* While it is scaled by itself, the number is what the cluster says. */ -}}
{{- define "flotilla.replicas" -}}
{{- $there := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "flotilla.name" .) }}
{{- if not .Values.autoscaling.enabled }}{{ .Values.replicas }}
{{- else if $there }}{{ $there.spec.replicas }}
{{- else }}{{ .Values.autoscaling.minReplicas }}
{{- end }}
{{- end }}

{{- /* Who reads the metrics, by the Secret with its token. */ -}}
{{- define "flotilla.reader" -}}
{{- $own := printf "%s-metrics-reader" (include "flotilla.name" .) }}
{{- if include "flotilla.hosted" . }}{{ .Values.monitoring.tokenSecret | default $own }}{{ else }}{{ $own }}{{ end }}
{{- end }}

{{- /* A million is 1e+06 otherwise. */ -}}
{{- define "flotilla.text" -}}
{{ if kindIs "string" . }}{{ . }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}

{{- /* The flags in the order of the manifests. A flag of .Values.flags takes the place of the chart's, or comes at the end. */ -}}
{{- define "flotilla.args" -}}
{{- $own := list
  (list "member-name" "$(POD_NAME)")
  (list "bind-address" "$(POD_IP)")
  (list "secure-port" "10257")
  (list "tls-min-version" "VersionTLS12")
  (list "profiling" "false")
  (list "use-service-account-credentials" "true")
  (list "service-account-private-key-file" "/etc/kubernetes/pki/sa.key")
  (list "root-ca-file" "/etc/kubernetes/pki/ca.crt")
  (list "cluster-signing-cert-file" "/etc/kubernetes/pki/ca.crt")
  (list "cluster-signing-key-file" "/etc/kubernetes/pki/ca.key")
  (list "controllers" "*,bootstrap-signer-controller,token-cleaner-controller")
  (list "terminated-pod-gc-threshold" "12500") }}
{{- if include "flotilla.hosted" . }}
{{- range list "kubeconfig" "authentication-kubeconfig" "authorization-kubeconfig" }}
{{- $own = append $own (list . "/etc/kubernetes/flotilla/kubeconfig") }}
{{- end }}
{{- end }}
{{- range .Values.leaderLocks }}{{ $own = append $own (list "leader-lock" .) }}{{ end }}
{{- include "flotilla.flags" (dict "root" . "own" $own) }}
{{- end }}

{{- /* The same of a shadow, which needs no keys: what signs tokens and certificates is then not among its controllers. */ -}}
{{- define "flotilla.shadowArgs" -}}
{{- $own := list
  (list "shadow" .Values.shadow.member)
  (list "shadow-rights-of" .Values.shadow.rightsOf)
  (list "bind-address" "$(POD_IP)")
  (list "secure-port" "10257")
  (list "tls-min-version" "VersionTLS12")
  (list "profiling" "false")
  (list "use-service-account-credentials" "true")
  (list "root-ca-file" "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
  (list "controllers" "*,bootstrap-signer-controller,token-cleaner-controller")
  (list "terminated-pod-gc-threshold" "12500") }}
{{- include "flotilla.flags" (dict "root" . "own" $own) }}
{{- end }}

{{- /* (dict "root" $ "own" flags), a flag being a list of its name and value. */ -}}
{{- define "flotilla.flags" -}}
{{- $values := .root.Values }}
{{- $seen := dict }}
{{- range .own }}
{{- $name := first . }}
{{- $_ := set $seen $name true }}
- {{ hasKey $values.flags $name | ternary (get $values.flags $name) (last .) | include "flotilla.text" | printf "--%s=%s" $name | quote }}
{{- end }}
{{- range $name, $value := $values.flags }}
{{- if not (hasKey $seen $name) }}
- {{ include "flotilla.text" $value | printf "--%s=%s" $name | quote }}
{{- end }}
{{- end }}
{{- range $values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
