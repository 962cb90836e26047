package domain

// KindOverdue is the kind of incident of a job that did not succeed in time.
const KindOverdue = "no success"

// IncidentUnit returns the noun for the events counted by an incident of a kind: missed windows of
// expect_success_within, or failure.
func IncidentUnit(kind, failure string) string {
	if kind == KindOverdue {
		return "missed window"
	}
	return failure
}
