package daemon

import (
	"slices"

	"rouse/internal/domain"
	"rouse/scheduler/simulate"
)

// LeftOut adds to a simulation the instants that dates and calendars take out of the schedules of a job ("": of all jobs), in their order.
// Of what a job keeps to, one stands for all until the next time that it names.
func LeftOut(out []simulate.Occurrence, o simulate.Options, job string) []simulate.Occurrence {
	for _, j := range o.Jobs {
		if job != "" && j.Name != job {
			continue
		}

		anchor := o.From
		if st, ok := o.States[j.Name]; ok {
			anchor = st.Anchor
		}
		for _, sch := range j.Schedules {
			for _, gone := range sch.WithAnchor(anchor).LeftOut(o.From, o.To, maxLeftOut) {
				out = append(out, simulate.Occurrence{Job: j.Name, Agent: j.Agent, Source: sch.Source(), Nominal: gone.At, Actual: gone.At, Decision: domain.DecisionSkipped, Reason: gone.Why})
			}
		}
	}

	slices.SortStableFunc(out, func(a, b simulate.Occurrence) int { return a.Nominal.Compare(b.Nominal) })
	return out
}

// maxLeftOut is how many such instants of one schedule are listed.
const maxLeftOut = 1000
