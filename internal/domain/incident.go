package domain

// KindOverdue is the kind of incidents of jobs that did not succeed in time.
const KindOverdue = "no success"

// IncidentUnit returns the noun for what an incident of a kind counts: windows of expect_success_within, or failure.
func IncidentUnit(kind, failure string) string {
	if kind == KindOverdue {
		return "missed window"
	}
	return failure
}
