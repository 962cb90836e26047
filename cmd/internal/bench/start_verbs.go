package bench

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// quickVerbs are what is asked of a home at the command line, before which nobody wants to wait.
var quickVerbs = []struct {
	name string
	args []string
}{
	{"jobs", []string{"jobs"}},
	{"runs", []string{"runs"}},
	{"why", []string{"why", "j0"}},
	{"next", []string{"next"}},
	{"config check", []string{"config", "check"}},
	{"completion of a job", []string{"__complete", "run", ""}},
	{"completion of a run", []string{"__complete", "show", ""}},
}

// verbs times each verb on a home; where says with or without a daemon.
func (h startHome) verbs(ctx context.Context, self, where string, passes int) ([]Figure, error) {
	var out []Figure
	for _, v := range quickVerbs {
		// Behind the verb: the last word is what is completed.
		args := slices.Insert(slices.Clone(v.args), len(v.args)-1, "--config", h.config)
		if v.args[0] != "__complete" {
			args = append(slices.Clone(v.args), "--config", h.config)
		}

		f, err := timeCommand(ctx, self, fmt.Sprintf("%s, %s jobs, %s", v.name, grouped(h.jobs), where), 15, passes, args...)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// timeCommand is how long a command takes from its start to its end, in ms.
func timeCommand(ctx context.Context, self, name string, goal float64, passes int, args ...string) (Figure, error) {
	var took []float64
	for range passes {
		begin := time.Now()
		if out, err := exec.CommandContext(ctx, self, args...).CombinedOutput(); err != nil {
			return Figure{}, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
		}
		took = append(took, time.Since(begin).Seconds()*1000)
	}

	value := median(took)
	return Figure{name, value, 0, "ms", 0, fmt.Sprintf("≤ %g ms", goal), value <= goal}, nil
}
