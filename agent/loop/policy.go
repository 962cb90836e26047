package loop

// Policy are the knobs in which surfaces differ (OSA-01).
type Policy struct {
	Name            string
	BudgetWarning   int    // tell the model when this many steps or fewer are left; 0 never
	EmptyRetries    int    // nudges after an empty answer
	TurnRetries     int    // un-charged repeats of a turn that failed on the model's side
	Hasty           bool   // they are made at once: who is asked does not need the pause
	StopOnRejection bool   // a rejected call ends the run
	Dedupe          bool   // a reading call whose result still holds is not made again (OSA-12)
	DedupeNotice    bool   // and the model is told
	Bias            bool   // advice after listings, guesses and repetitions (OSA-14)
	TodoStale       int    // steps after which an unwritten todo list with open items is spoken of; 0 never
	DataSteps       int    // steps that may be free because they only move rows (OSA-23)
	Plain           bool   // a playbook: steps are not counted, nobody is nudged
	LastWord        string // what to write when the steps are used up; "" for what was done
	Phases          Phases
}

// Headless is the policy of models that nobody watches.
func Headless() Policy {
	return Policy{Name: "headless", BudgetWarning: 3, EmptyRetries: 2, TurnRetries: 3, Dedupe: true, Bias: true, TodoStale: 4, DataSteps: 16}
}

// Playbook is the policy of fixed lists of calls.
func Playbook() Policy { return Policy{Name: "playbook", Plain: true} }

// Phases are the limits of runs that work in phases (AYA-11). Without MaxSteps a run does
// not work in phases.
type Phases struct {
	BaseSteps, PerCall, MaxSteps int // steps: so many, so many more with each action, and at most
	Idle                         int // steps in a row without an action that end a run
	Repeats                      int // how often the same action may be taken in a row
	View                         int // bytes of the working memory that a model sees
}

// Phased is the policy of models that work in phases and keep a working memory. The view of
// it tells of the plan and of repetition, so that fewer notices do.
func Phased() Policy {
	p := Headless()
	p.Name, p.TodoStale = "phased", 0
	p.Phases = Phases{BaseSteps: 12, PerCall: 2, MaxSteps: 20, Idle: 4, Repeats: 3, View: 8 << 10}
	return p
}
