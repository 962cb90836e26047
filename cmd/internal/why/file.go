package why

import (
	"context"
	"fmt"
	"strconv"

	"rouse/cmd/internal/api"
	"rouse/watcher"
	"rouse/watcher/settle"
)

// WhyFile explains how the watches of a folder treat a file, or each file if path is the folder.
func (x *Explainer) WhyFile(ctx context.Context, path string) ([]api.WhyFile, error) {
	s := x.Setup()
	if err := s.Usable(); err != nil {
		return nil, err
	}

	waits := map[string][]settle.WaitingFile{}
	if x.Watcher != nil {
		for _, st := range x.Watcher.Status(ctx) {
			waits[st.Job] = st.Waits
		}
	}

	verdicts, err := watcher.Explain(ctx, x.Ledger, s.Plan.Watches, waits, path)
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
