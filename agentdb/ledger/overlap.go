package ledger

import (
	"fmt"
	"math"

	"rouse/internal/domain"
	"rouse/internal/text"
)

// maxQueueAll is how many runs of a job `overlap: queue_all` keeps queued.
const maxQueueAll = 100

// overlappingRuns has the runs that wait for their model with those that are queued: they have not begun
// either, and a night without a model would pile them up. It repeats that the runs are not finished, so that SQLite uses the partial index.
const overlappingRuns = `select ` + runColumns + ` from runs where job = $1
	and (state in ($2, $3) or state = 'waiting' and waiting_for = 'retry' and postponements > 0) and state <> 'finished'
	and not (state = 'queued' and triggered_by = 'backfill') order by id limit $4`

// OverlapCandidates says which runs of a job decide an overlap policy: those in these states that do not
// yield to the instant anyway (Run.Yields), and of those at most so many of the oldest. The limit matters: a job can have any number of runs queued,
// and each of its instants is decided in the one transaction that all writers share.
func OverlapCandidates(policy domain.Overlap) (states []domain.State, most int) {
	switch policy {
	case domain.OverlapAllow, domain.OverlapQueueOne: // of allow for one that is blocked alone
		return []domain.State{domain.StateQueued}, 1
	case domain.OverlapQueueAll:
		return []domain.State{domain.StateQueued}, maxQueueAll
	case domain.OverlapCancel:
		return []domain.State{domain.StateQueued, domain.StateRunning}, math.MaxInt32
	}
	return []domain.State{domain.StateQueued, domain.StateRunning}, 1
}

// maxObstacles is how much of what is in the way of another run is told of an instant, in characters.
const maxObstacles = 200

const replacedReason = "overlap: a newer occurrence took its place"

// DecideDue says what becomes of an instant that is to run, given the runs that it overlaps with,
// oldest first, and the pauses. cancelOthers says that it replaces those runs. It is pure.
func DecideDue(d Due, others []Run, pauses []Pause) (decision domain.Decision, reason string, cancelOthers bool) {
	if p, ok := Paused(pauses, d.Job, d.Agent, d.Nominal); ok {
		return domain.DecisionSkipped, p.String(), false
	}

	decision, reason, cancelOthers = decideOverlap(d.Overlap, others)
	if reason == "" {
		reason = d.Reason
	}
	return decision, reason, cancelOthers
}

// decideOverlap applies an overlap policy; others are the runs that decide it, oldest first.
func decideOverlap(policy domain.Overlap, others []Run) (decision domain.Decision, reason string, cancelOthers bool) {
	var queued []Run
	for _, r := range others {
		if r.State == domain.StateQueued || r.Postponed() {
			queued = append(queued, r)
		}
	}

	// A job that cannot work now has one run that waits, whatever may run side by side: they would all begin at once when it can.
	if r, blocked := blockedFirst(queued); blocked && policy != domain.OverlapCancel {
		return domain.DecisionSkipped, fmt.Sprintf("overlap: run %d waits already: %s", r.ID, text.Truncate(ObstaclesText(r.Blocked.By), maxObstacles)), false
	}

	switch policy {
	case domain.OverlapAllow:
	case domain.OverlapCancel:
		return domain.DecisionRun, "", len(others) > 0
	case domain.OverlapQueueOne:
		if len(queued) > 0 {
			return domain.DecisionSkipped, fmt.Sprintf("overlap: run %d is already queued", queued[0].ID), false
		}
	case domain.OverlapQueueAll:
		if len(queued) >= maxQueueAll {
			return domain.DecisionSkipped, fmt.Sprintf("overlap: %d runs are already queued", len(queued)), false
		}
	default:
		if len(others) > 0 {
			return domain.DecisionSkipped, fmt.Sprintf("overlap: run %d is still %s", others[0].ID, others[0].State), false
		}
	}

	return domain.DecisionRun, "", false
}
