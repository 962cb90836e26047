package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// What becomes of a call that needs its owner's word.
const (
	OnDeniedPark     = "park"     // the run waits for it
	OnDeniedFail     = "fail"     // the call is refused, and the run ends
	OnDeniedContinue = "continue" // the call is refused, and the run goes on
)

// Gate are the rules of an agent for what its calls would do (UNI-06). It decides and does
// nothing: what was said and met before is brought to it.
type Gate struct {
	Agent    string
	OnDenied string // "" is OnDeniedPark
	MinTier  string // the weakest confinement of programs; "" is B, and A once the run has met untrusted content
}

// Said is what an owner has said of an action.
type Said struct {
	Stands bool // it is allowed until that is taken back
	Once   bool // it is allowed to this call
	Denied bool // it is not allowed in this run
	Reason string
}

// Verdict is what becomes of a call: it is made, unless it is refused or its owner is asked.
type Verdict struct {
	Refusal *Envelope // answers the call in the place of its tool
	Denied  bool      // nor are the later calls of the same answer made (OSA-07)
	Ask     *Approval
}

// Approval is what an owner is asked to allow.
type Approval struct {
	Call, Tool string // the key of the call, and who it is made to
	Shown      string // what it would do, exactly
	Why        string // it needs an owner's word
	Hash       string // of the action; what is said holds for it alone
	Each       bool   // it cannot be allowed for good
}

// Decide judges what a call needs, in the order deny, grant, tier, approval. met are the labels
// of the run before it; said is asked about an action that needs an owner's word.
func (g Gate) Decide(tool string, n Need, taint Taint, said func(hash string) (Said, error)) (Verdict, error) {
	if n.Refused != nil {
		return refuse(*n.Refused, tool, false), nil
	}

	why := approvalReasons(n, taint)
	var s Said
	hash := ""
	if why != "" {
		var err error
		hash = ActionHash(g.Agent, tool, n.Action)
		if s, err = said(hash); err != nil {
			return Verdict{}, err
		}
	}

	allowed := why == "" || (s.Stands && !n.Each) || s.Once
	switch {
	case !allowed && s.Denied:
		text := "the owner of this agent does not allow it"
		if s.Reason != "" {
			text += ": " + s.Reason
		}
		return refuse(Failure(KindUserDenied, "%s", text), tool, true), nil
	case !allowed && n.Missing != "" && g.neverAsks():
		return g.rejected(tool, n.Missing), nil
	case n.Tier > g.minTier(taint|n.Adds):
		return refuse(Failure(KindRejected, "programs are confined on tier %s here, and this run asks for tier %s at least; its owner sees with rouse doctor what to install, or lowers min_tier", n.Tier, g.minTier(taint|n.Adds)), tool, false), nil
	case allowed:
		return Verdict{}, nil
	case g.neverAsks():
		return g.rejected(tool, why), nil
	}

	return Verdict{Ask: &Approval{Tool: tool, Shown: n.Shown, Why: why, Hash: hash, Each: n.Each}}, nil
}

func (g Gate) neverAsks() bool { return g.OnDenied == OnDeniedFail || g.OnDenied == OnDeniedContinue }

func (g Gate) rejected(tool, why string) Verdict {
	return refuse(Failure(KindRejected, "%s, and this agent does not ask its owner", why), tool, g.OnDenied == OnDeniedFail)
}

// minTier is the weakest confinement that a run may start programs on.
func (g Gate) minTier(taint Taint) string {
	switch {
	case g.MinTier != "":
		return g.MinTier
	case taint&Untrusted != 0:
		return "A"
	}
	return "B"
}

// approvalReasons say why a call needs its owner's word, "" when it does not. A run that holds all three
// labels by its owner's word is asked about each further effect beyond the host, and not about
// what it reads.
func approvalReasons(n Need, taint Taint) string {
	var why []string
	if n.Missing != "" {
		why = append(why, n.Missing)
	}

	all := taint | n.Adds
	if added := all &^ taint; all == AllTaints && (added != 0 || n.Adds&Outward != 0) {
		why = append(why, "the run would hold untrusted content (A), private data (B) and an effect beyond the host (C) together")
	}

	if n.Each {
		why = append(why, "it installs software, which is asked about each time")
	}

	if n.Asks && len(why) == 0 {
		why = append(why, "it is asked for each time")
	}

	return strings.Join(why, "; ")
}

func refuse(e Envelope, tool string, denied bool) Verdict {
	e.Tool = tool
	return Verdict{Refusal: &e, Denied: denied}
}

// ActionHash names an action of an agent: SHA-256 in hexadecimal. The lengths keep two that are
// cut elsewhere apart.
func ActionHash(agent, tool, action string) string {
	h := sha256.New()
	for _, part := range []string{agent, tool, action} {
		fmt.Fprintf(h, "%d:%s,", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}
