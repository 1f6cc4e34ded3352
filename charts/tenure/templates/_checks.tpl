{{/* "1m30s" -> milliseconds. The schema has checked the form. */}}
{{- define "tenure.millis" -}}
{{- $units := dict "h" 3600000 "m" 60000 "s" 1000 "ms" 1 -}}
{{- $sum := int64 0 -}}
{{- range regexFindAll "[0-9]+(h|ms|m|s)" . -1 -}}
{{- $number := regexFind "^[0-9]+" . -}}
{{- $sum = add $sum (mul (int64 $number) (int64 (get $units (trimPrefix $number .)))) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* (list milliseconds nanoseconds) -> "1.5s", "200ms", "8.333333333s": as the binary prints a duration. */}}
{{- define "tenure.duration" -}}
{{- $ms := index . 0 | int64 -}}
{{- $rest := index . 1 | int64 -}}
{{- if or (ge $ms 1000) (eq $ms 0) -}}
{{- div $ms 1000 }}{{ include "tenure.fraction" (printf "%09d" (add (mul (mod $ms 1000) 1000000) $rest)) }}s
{{- else -}}
{{- $ms }}{{ include "tenure.fraction" (printf "%06d" $rest) }}ms
{{- end -}}
{{- end -}}
{{/* 5/6 of a number of milliseconds. */}}
{{- define "tenure.fiveSixths" -}}
{{- $five := mul 5 (int64 .) -}}
{{- include "tenure.duration" (list (div $five 6) (div (mul (mod $five 6) 1000000) 6)) -}}
{{- end -}}
{{- define "tenure.fraction" -}}
{{- with regexReplaceAll "0+$" . "" }}.{{ . }}{{ end -}}
{{- end -}}

{{/* Seconds of (R - P) / 3, the time that one attempt stays alone. */}}
{{- define "tenure.attemptSeconds" -}}
{{- $r := include "tenure.millis" .Values.timings.renewDeadline | int64 -}}
{{- $p := include "tenure.millis" .Values.timings.retryPeriod | int64 -}}
{{- round (divf (sub $r $p) 3000) 3 -}}
{{- end -}}

{{/* Refuses what the binary would refuse, with its words, and what only the chart can see. Renders nothing. */}}
{{- define "tenure.checkValues" -}}
{{- $v := .Values -}}
{{- $l := include "tenure.millis" $v.timings.leaseDuration | int64 -}}
{{- $r := include "tenure.millis" $v.timings.renewDeadline | int64 -}}
{{- $p := include "tenure.millis" $v.timings.retryPeriod | int64 -}}
{{- $ld := include "tenure.duration" (list $l 0) -}}
{{- $rd := include "tenure.duration" (list $r 0) -}}
{{- $pd := include "tenure.duration" (list $p 0) -}}
{{- range $flag, $n := dict "--lease-duration" $l "--renew-deadline" $r "--retry-period" $p -}}
{{- if eq (int64 $n) 0 -}}{{- fail (printf "%s=0s: must be greater than zero" $flag) -}}{{- end -}}
{{- end -}}
{{- if ne (mod $l 1000) 0 -}}
{{- fail (printf "--lease-duration=%s: must be whole seconds (a Lease stores no fractions)" $ld) -}}
{{- end -}}
{{- if lt $l 2000 -}}
{{- fail (printf "--lease-duration=%s: must be at least 2s" $ld) -}}
{{- end -}}
{{- if gt $l 2147483647000 -}}
{{- fail (printf "--lease-duration=%s: must be at most 2147483647s" $ld) -}}
{{- end -}}
{{- if gt (mul 6 $r) (mul 5 $l) -}}
{{- fail (printf "--renew-deadline=%s: 1.2 x --renew-deadline must be at most --lease-duration=%s (allowed: up to %s)" $rd $ld (include "tenure.fiveSixths" $l)) -}}
{{- end -}}
{{- if ge (mul 6 $p) (mul 5 $r) -}}
{{- fail (printf "--retry-period=%s: 1.2 x --retry-period must be less than --renew-deadline=%s (allowed: below %s)" $pd $rd (include "tenure.fiveSixths" $r)) -}}
{{- end -}}
{{- if lt (sub $r $p) 600 -}}
{{- fail (printf "--retry-period=%s: (--renew-deadline=%s - --retry-period) / 3 must be at least 200ms, room for 3 attempts" $pd $rd) -}}
{{- end -}}
{{- if ne $v.drainTimeout "auto" -}}
{{- $d := include "tenure.millis" $v.drainTimeout | int64 -}}
{{- $room := sub (int $v.terminationGracePeriodSeconds) 3 -}}
{{- if gt $d (mul $room 1000) -}}
{{- fail (printf "--drain-timeout=%s: must leave 3s of terminationGracePeriodSeconds=%d for the release (allowed: up to %ds)" (include "tenure.duration" (list $d 0)) (int $v.terminationGracePeriodSeconds) $room) -}}
{{- end -}}
{{- else if lt (int $v.terminationGracePeriodSeconds) 3 -}}
{{- fail (printf "terminationGracePeriodSeconds=%d: must be at least 3, the time a release may take" (int $v.terminationGracePeriodSeconds)) -}}
{{- end -}}
{{- if and $v.maxValid (lt (include "tenure.millis" $v.maxValid | int64) 1) -}}
{{- fail "--max-valid=0ns: allowed: at least 1ms" -}}
{{- end -}}
{{- if eq (int $v.ports.api) (int $v.ports.admin) -}}
{{- fail (printf "ports.admin=%d: must differ from ports.api" (int $v.ports.admin)) -}}
{{- end -}}
{{- $names := list "POD_NAME" "POD_UID" -}}
{{- range $v.extraEnv -}}
{{- if has .name $names -}}{{- fail (printf "extraEnv: %s is set already" .name) -}}{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $flags := list "--lease-name" "--lease-duration" "--renew-deadline" "--retry-period" "--drain-timeout" "--on-app-exit" "--max-valid" "--listen" "--admin-listen" "--socket" "--socket-mode" "--log-format" "--log" -}}
{{- range $v.extraArgs -}}
{{- $flag := splitList "=" . | first -}}
{{- if has $flag $flags -}}{{- fail (printf "extraArgs: %s has a value of its own in this chart" $flag) -}}{{- end -}}
{{- end -}}
{{- range $key, $_ := $v.lease.annotations -}}
{{- if hasPrefix "tenure.dev/" $key -}}{{- fail (printf "lease.annotations: %s belongs to the electors" $key) -}}{{- end -}}
{{- end -}}
{{- end -}}
