package daemon

import (
	"context"
	"slices"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/domain"
)

const (
	costDays = 7  // how far Cost looks ahead
	costRuns = 50 // runs of a job's history that it goes by
	high     = 90 // the percentile of what is high
)

// Cost implements web.Backend. Of the coming week, of one job or of all ("").
func (d *Daemon) Cost(ctx context.Context, job string) (api.Cost, error) {
	s, now := d.Current(), d.ledger.Now()
	if err := s.usable(); err != nil {
		return api.Cost{}, err
	}

	until := now.AddDate(0, 0, costDays)
	out := api.Cost{From: api.At(now), To: api.At(until), Jobs: []api.CostRow{}}
	counted := map[string]int{}
	for _, j := range s.Config.Jobs {
		if name := string(j.Name); job == "" || name == job {
			runs, after := d.comingRuns(s, &j, now, until, counted)
			if runs == 0 && job == "" {
				continue // nothing by the clock
			}

			last, err := d.ledger.LastUsages(ctx, name, costRuns)
			if err != nil {
				return out, err
			}
			row := costRow(runs, last)
			row.Job, row.Agent, row.After = name, j.Agent, after
			out.Jobs = append(out.Jobs, row)
		}
	}

	for _, r := range out.Jobs {
		out.MedianUSD, out.HighUSD = out.MedianUSD+r.MedianUSD, out.HighUSD+r.HighUSD
		out.MedianTokens, out.HighTokens = out.MedianTokens+r.MedianTokens, out.HighTokens+r.HighTokens
		if r.PastRuns == 0 {
			out.Unforeseen += r.Runs
		}
	}
	return out, nil
}

// comingRuns is how many runs of a job are to come until a time, and how many of them follow runs of others: as many as those have, if all
// end well. counted keeps what is known, since jobs may be followed by several.
func (d *Daemon) comingRuns(s *Setup, j *config.Job, now, until time.Time, counted map[string]int) (runs, after int) {
	if !config.On(j.Enabled) {
		return 0, 0
	}

	runs = foreseenRuns(d.comingUntil(string(j.Name), now, until), now, until)
	for _, f := range j.Follows {
		first := s.job(f.Job)
		if first == nil || !slices.Contains(f.On, domain.OutcomeSuccess) {
			continue
		}
		n, known := counted[f.Job]
		if !known {
			n, _ = d.comingRuns(s, first, now, until, counted) // a circle was refused with the configuration
			counted[f.Job] = n
		}
		after += n
	}
	return runs + after, after
}

// costRow is what so many runs cost that are like the last ones.
func costRow(runs int, last []ledger.Usage) api.CostRow {
	row := api.CostRow{Runs: runs, PastRuns: len(last)}
	if len(last) == 0 {
		return row
	}

	var cost, tokens []float64
	for _, u := range last {
		cost, tokens = append(cost, float64(u.CostMicroUSD)), append(tokens, float64(u.TokensIn+u.TokensOut))
	}
	usd := func(micro float64) float64 { return float64(int64(micro)) / 1e6 }
	row.RunMedianUSD, row.RunHighUSD = usd(median(cost)), usd(percentile(cost, high))
	row.RunMedianTokens, row.RunHighTokens = int64(median(tokens)), int64(percentile(tokens, high))

	n := float64(runs)
	row.MedianUSD, row.HighUSD = usd(median(cost)*n), usd(percentile(cost, high)*n)
	row.MedianTokens, row.HighTokens = row.RunMedianTokens*int64(runs), row.RunHighTokens*int64(runs)
	return row
}

// percentile is the value that so many of a hundred are no more than: the nearest of those that there are, of which there is at least one.
func percentile(values []float64, of int) float64 {
	slices.Sort(values)
	rank := (len(values)*of + 99) / 100
	return values[max(rank, 1)-1]
}
