{{- define "weir.mounts" -}}
- {name: home, mountPath: /home/nonroot}
{{- $v := .Values }}
{{- if $v.auth.existingSecret.name }}
- {name: auth, mountPath: /etc/weir/auth, readOnly: true}
{{- end }}
{{- if $v.tls.existingSecret.name }}
- {name: tls, mountPath: /etc/weir/tls, readOnly: true}
{{- end }}
{{- if $v.leaseKey.existingSecret.name }}
- {name: lease-key, mountPath: /etc/weir/lease-key, readOnly: true}
{{- end }}
{{- if $v.envoyMapping.existingConfigMap.name }}
- {name: envoy, mountPath: /etc/weir/envoy, readOnly: true}
{{- end }}
{{- end -}}

{{- define "weir.volumes" -}}
- {name: home, emptyDir: {}}
{{- $v := .Values }}
{{- with $v.auth.existingSecret.name }}
- {name: auth, secret: {secretName: {{ . | quote }}, defaultMode: 0440}}
{{- end }}
{{- with $v.tls.existingSecret.name }}
- {name: tls, secret: {secretName: {{ . | quote }}, defaultMode: 0440}}
{{- end }}
{{- with $v.leaseKey.existingSecret.name }}
- {name: lease-key, secret: {secretName: {{ . | quote }}, defaultMode: 0440}}
{{- end }}
{{- with $v.envoyMapping.existingConfigMap.name }}
- {name: envoy, configMap: {name: {{ . | quote }}}}
{{- end }}
{{- end -}}
