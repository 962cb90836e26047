package daemon

import (
	"context"
	"fmt"
	"strconv"

	"rouse/cmd/internal/api"
	"rouse/watcher"
)

// WhyFile implements web.Backend.
func (d *Daemon) WhyFile(ctx context.Context, path string) ([]api.WhyFile, error) {
	s := d.Current()
	if err := s.usable(); err != nil {
		return nil, err
	}

	waits := map[string][]watcher.Wait{}
	if d.watcher != nil {
		for _, st := range d.watcher.Status(ctx) {
			waits[st.Job] = st.Waits
		}
	}

	verdicts, err := watcher.Explain(ctx, d.ledger, s.plan.watches, waits, path)
	if err != nil {
		return nil, err
	}
	if len(verdicts) == 0 {
		return nil, &api.Error{Status: 404, Message: fmt.Sprintf("%s is in no folder that a job watches, or there is nothing in it; see: rouse jobs", path)}
	}

	out := make([]api.WhyFile, len(verdicts))
	for i, v := range verdicts {
		out[i] = api.WhyFile{Job: v.Job, Path: v.Path, Verdict: v.Verdict, Reason: v.Reason, Since: api.At(v.Since), Outcome: v.Outcome}
		if v.Run != 0 {
			out[i].Run = strconv.FormatInt(v.Run, 10)
		}
	}
	return out, nil
}
