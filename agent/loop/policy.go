package loop

// Policy is what differs between kinds of runs (OSA-01).
type Policy struct {
	Name          string
	BudgetWarning int // tell the model when this many steps or fewer are left; 0 never
	EmptyRetries  int // how often in a row to ask again after an empty answer
	TurnRetries   int // repeats, not charged, of a turn that failed on the model's side
	// UnreachableRetries takes the place of TurnRetries for a server that no request has reached, where
	// that is more: with their pauses they are about 90 seconds, in which a server restarts.
	UnreachableRetries int
	NoRetryDelay       bool // without a pause before them: a recording answers, not a server
	StopOnRejection    bool // a rejected call ends the run
	EndOnQuestion      bool // a question ends the run as its result: the asker sends the request again with the answer (OSA-06)
	Dedupe             bool // a reading call whose result still holds is not made again (OSA-12)
	DedupeNotice       bool // and the model gets a notice about it
	Advice             bool // advice after listings, guesses and repetitions (OSA-14)
	StaleTodoSteps     int  // steps without a change after which a todo list with open items gets a notice; 0 never
	// FreeSteps is the relief: how many steps of a run are not charged, and never more than its bound.
	// They are those that only move rows (OSA-23) and the steps of reductions. Empty answers are never charged (OSA-04).
	FreeSteps     int
	NoModel       bool   // no model answers (a playbook): each call is a step, and nothing is said to it
	ClosingPrompt string // what the last text is to say when the steps are used up; "": what was done
	Phases        Phases
}

// Headless is the policy of models that nobody watches.
func Headless() Policy {
	return Policy{Name: "headless", BudgetWarning: 3, EmptyRetries: 2, TurnRetries: 3, UnreachableRetries: 7, Dedupe: true, Advice: true, StaleTodoSteps: 4, FreeSteps: 16}
}

// ChatSteps is how many steps a run has that a chat asked for, where no bound is given (OSA-01).
const ChatSteps = 15

// Chat is the policy of runs whose asker waits for the answer in a conversation: they are told at once that something was
// refused, and go on in their own words.
func Chat() Policy {
	p := Headless()
	p.Name, p.StopOnRejection, p.DedupeNotice, p.EndOnQuestion = "chat", true, true, true
	return p
}

// Playbook is the policy of fixed lists of calls.
func Playbook() Policy { return Policy{Name: "playbook", NoModel: true} }

// Phases are the limits of runs that work in phases (AYA-11). Without MaxSteps a run does
// not work in phases.
type Phases struct {
	BaseSteps int // to begin with
	PerCall   int // steps that each action adds
	MaxSteps  int // at most
	Idle      int // steps in a row without an action that end a run
	Repeats   int // how often the same action may be taken in a row
	View      int // bytes of the working memory that a model sees
}

// Phased is the policy of models that work in phases and keep a working memory. Its view shows
// the plan and repetitions, so that fewer notices are needed.
func Phased() Policy {
	p := Headless()
	p.Name, p.StaleTodoSteps = "phased", 0
	p.Phases = Phases{BaseSteps: 12, PerCall: 2, MaxSteps: 20, Idle: 4, Repeats: 3, View: 8 << 10}
	return p
}
