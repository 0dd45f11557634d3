package kubelet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// script returns a check that gives these answers, + for success and - for failure, and repeats the
// last.
func script(answers string) check {
	n := 0
	return func(context.Context, *corev1.Probe) error {
		answer := answers[min(n, len(answers)-1)]
		n++
		if answer == '+' {
			return nil
		}
		return errors.New("no")
	}
}

// TestWatchProbe checks that thresholds count equal results in a row.
func TestWatchProbe(t *testing.T) {
	for _, tc := range []struct {
		name, answers string
		probe         corev1.Probe
		want          string // Second and result of each report.
	}{
		{"defaults of the type", "+", corev1.Probe{}, "0+"},
		{"delay", "+", corev1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 10}, "5+"},
		{"threshold of failures", "+--+---+", corev1.Probe{PeriodSeconds: 2, FailureThreshold: 3}, "0+ 12- 14+"},
		{"threshold of successes", "-++", corev1.Probe{PeriodSeconds: 1, SuccessThreshold: 2}, "0- 2+"},
		{"at first nothing is known", "--+", corev1.Probe{PeriodSeconds: 1, FailureThreshold: 3}, "2+"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			var got []string
			watchProbe(ctx, &tc.probe, script(tc.answers), func(ok bool, _ error) {
				got = append(got, fmt.Sprintf("%d%c", int(time.Since(began).Seconds()), map[bool]rune{true: '+', false: '-'}[ok]))
			})
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%s: %v, want %s", tc.name, got, tc.want)
			}
		})
	}
}

// TestRunProbes runs the probes of a container in their order.
func TestRunProbes(t *testing.T) {
	startup, liveness, readiness := &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 3}, &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 2}, &corev1.Probe{PeriodSeconds: 1}
	for _, tc := range []struct {
		name                      string
		container                 corev1.Container
		start, alive, ready, want string
	}{
		{"no probes", corev1.Container{}, "", "", "", "0 begun ready"},
		{"ready later", corev1.Container{ReadinessProbe: readiness}, "", "", "-+", "0 begun; 1 begun ready"},
		{"not ready any more", corev1.Container{ReadinessProbe: readiness}, "", "", "+-", "0 begun; 0 begun ready; 1 begun"},
		{"never begun", corev1.Container{StartupProbe: startup, LivenessProbe: liveness}, "-", "+", "", "2 fatal"},
		{"begun, then dead", corev1.Container{StartupProbe: startup, LivenessProbe: liveness}, "--+", "+-", "", "2 begun ready; 4 begun ready fatal"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			scripts := map[*corev1.Probe]check{startup: script(tc.start + "+"), liveness: script(tc.alive + "+"), readiness: script(tc.ready + "+")}
			for probe, answers := range map[*corev1.Probe]string{startup: tc.start, liveness: tc.alive, readiness: tc.ready} {
				if answers != "" {
					scripts[probe] = script(answers)
				}
			}
			began, events := time.Now(), make(chan verdict)
			go func() {
				defer close(events)
				runProbes(ctx, &tc.container, func(ctx context.Context, p *corev1.Probe) error { return scripts[p](ctx, p) }, events)
			}()
			var got []string
			for v := range events {
				words := []string{fmt.Sprint(int(time.Since(began).Seconds()))}
				for word, said := range map[string]bool{"begun": v.begun, "ready": v.ready, "fatal": v.fatal} {
					if said {
						words = append(words, word)
					}
				}
				slices.SortFunc(words[1:], func(a, b string) int {
					return strings.Index("begun ready fatal", a) - strings.Index("begun ready fatal", b)
				})
				got = append(got, strings.Join(words, " "))
			}
			if strings.Join(got, "; ") != tc.want {
				t.Errorf("%s: %q, want %q", tc.name, strings.Join(got, "; "), tc.want)
			}
		})
	}
}
