package check_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/config"
	"rouse/internal/domain"
)

// TestEnumsMatchDomain checks that the enums in field tags match the values of the code that uses
// them.
func TestEnumsMatchDomain(t *testing.T) {
	t.Parallel()
	job := reflect.TypeFor[config.Job]()
	outcomes := words(domain.OutcomeSuccess, domain.OutcomeNothing, domain.OutcomePartial, domain.OutcomeError, domain.OutcomeTimeout, domain.OutcomeBudget,
		domain.OutcomeCancelled, domain.OutcomeInterrupted, domain.OutcomeSkipped)
	for path, want := range map[string][]string{
		"OnMiss":    words(domain.MissSkip, domain.MissRunOnce, domain.MissCatchup),
		"Overlap":   words(domain.OverlapSkip, domain.OverlapQueueOne, domain.OverlapQueueAll, domain.OverlapCancel, domain.OverlapAllow),
		"Retry.On":  words(domain.OutcomeError, domain.OutcomeTimeout),
		"Notify.On": append(outcomes, domain.Failure, string(domain.StateWaiting)),
	} {
		in, name := job, path
		if outer, inner, ok := strings.Cut(path, "."); ok {
			field, _ := job.FieldByName(outer)
			in, name = field.Type, inner
		}

		field, ok := in.FieldByName(name)
		if got := strings.Split(field.Tag.Get("enum"), "|"); !ok || !slices.Equal(got, want) {
			t.Errorf("%s takes %v, want %v", path, got, want)
		}
	}
}

// TestKeep checks that a job without keep has the same retention as a removed job.
func TestKeep(t *testing.T) {
	t.Parallel()
	field, _ := reflect.TypeFor[config.Job]().FieldByName("Keep")
	preset, err := config.ParseDuration(field.Tag.Get("default"))
	if err != nil || preset != config.DefaultKeep {
		t.Errorf("the default of keep is %s, and of what has none %s: %v", preset, config.DefaultKeep, err)
	}

	c := config.Config{Jobs: []config.Job{{Name: "short", Keep: config.Duration(time.Hour)}, {Name: "unset"}}}
	for job, want := range map[string]time.Duration{"short": time.Hour, "unset": config.DefaultKeep, "gone": config.DefaultKeep, "": config.DefaultKeep} {
		if got := c.KeepOf(job); got != want {
			t.Errorf("%q is kept for %s, want %s", job, got, want)
		}
	}
}

func words[W ~string](list ...W) []string {
	var out []string
	for _, w := range list {
		out = append(out, string(w))
	}
	return out
}
