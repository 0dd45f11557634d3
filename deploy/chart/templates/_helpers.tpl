{{- define "flotilla.labels" -}}
app.kubernetes.io/name: flotilla
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "flotilla.hosted" -}}
{{- if eq .Values.mode "hosted" }}true
{{- else if ne .Values.mode "self-hosted" }}{{ fail (printf "mode %q: must be hosted or self-hosted" .Values.mode) }}
{{- else if ne .Release.Namespace "kube-system" }}{{ fail (printf "namespace %q: must be kube-system in mode self-hosted" .Release.Namespace) }}
{{- end }}
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
{{- range .Values.gateLeases }}{{ $own = append $own (list "gate-lease" .) }}{{ end }}
{{- $seen := dict }}
{{- range $own }}
{{- $name := first . }}
{{- $_ := set $seen $name true }}
- {{ hasKey $.Values.flags $name | ternary (get $.Values.flags $name) (last .) | include "flotilla.text" | printf "--%s=%s" $name | quote }}
{{- end }}
{{- range $name, $value := .Values.flags }}
{{- if not (hasKey $seen $name) }}
- {{ include "flotilla.text" $value | printf "--%s=%s" $name | quote }}
{{- end }}
{{- end }}
{{- end }}
