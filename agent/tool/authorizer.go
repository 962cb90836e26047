package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// What becomes of a call that needs its owner's approval.
const (
	OnDeniedPark     = "park"     // the run waits for it
	OnDeniedFail     = "fail"     // the call is refused, and the run ends
	OnDeniedContinue = "continue" // the call is refused, and the run goes on
)

// Authorizer holds the rules of an agent for what its calls would do (UNI-06). It only decides:
// the caller brings the taint of the run and the answers of its owner.
type Authorizer struct {
	Agent    string
	OnDenied string // "" is OnDeniedPark
	MinTier  string // the weakest confinement of programs; "" is B, and A once the run holds untrusted content
	// Met describes the origin of each label of the run. NotPrivate is Need.NotPrivate of its private data.
	Met        map[Taint]string
	NotPrivate string
}

// OwnerDecision is what an owner has answered about an action.
type OwnerDecision struct {
	Standing bool // a standing approval, until it is revoked
	Once     bool // approved for this call
	Denied   bool // denied in this run
	Reason   string
}

// Verdict is what becomes of a call: it is made, unless it is refused or its owner is asked.
type Verdict struct {
	Refusal *Envelope // answers the call in place of its tool
	Denied  bool      // the later calls of the same answer are not made either (OSA-07)
	Ask     *ApprovalRequest
	// Approved is the hash of the action that the owner's approval is for; "" when none was needed.
	Approved string
}

// ApprovalRequest is what an owner is asked to approve.
type ApprovalRequest struct {
	Call, Tool         string   // the key of the call, and the tool that it calls
	Shown              string   // what it would do, exactly
	Why                string   // the reasons why it needs an approval
	Hash               string   // of the action; an answer applies only to this action
	NoStandingApproval bool     // no standing approval is possible
	Settings           []string // settings of the agent or commands that would allow the call without approval
}

// Decide judges a call, in the order deny, grant, tier, approval. taint is that of the run before
// the call. said is called only for an action that needs an approval.
func (g Authorizer) Decide(tool string, n Access, taint Taint, said func(hash string) (OwnerDecision, error)) (Verdict, error) {
	if n.Refused != nil {
		return refuse(*n.Refused, tool, false), nil
	}

	n.AddsTaint = n.Labels(taint)
	why, settings := g.approvalReasons(n, taint)
	var s OwnerDecision
	hash := ""
	if why != "" {
		var err error
		if n.Bind != nil {
			n, err = RefusedAccess(n.Bind(n))
			if err != nil {
				return Verdict{}, err
			}
			if n.Refused != nil {
				return refuse(*n.Refused, tool, false), nil
			}
		}

		hash = ActionHash(g.Agent, tool, n.Action)
		if s, err = said(hash); err != nil {
			return Verdict{}, err
		}
	}

	allowed := why == "" || (s.Standing && !n.NoStandingApproval) || s.Once
	switch {
	case !allowed && s.Denied:
		text := "the owner of this agent does not allow it"
		if s.Reason != "" {
			text += ": " + s.Reason
		}
		return refuse(Failure(KindUserDenied, "%s", text), tool, true), nil
	case !allowed && n.MissingGrant != "" && g.neverAsks():
		return g.rejected(tool, n.MissingGrant), nil
	// Before the approval, also of what is approved already: nobody should be asked about a program
	// that cannot be started here. The labels of this call count, for the program reads what brings
	// them. Tiers compare as letters, A is the strongest; "" is no program and never too weak.
	case n.Tier > g.minTier(taint|n.AddsTaint):
		return refuse(Failure(KindRejected, "programs are confined on tier %s here, and this run asks for tier %s at least; its owner sees with rouse doctor what to install, or lowers min_tier", n.Tier, g.minTier(taint|n.AddsTaint)), tool, false), nil
	case allowed:
		return Verdict{Approved: hash}, nil
	case g.neverAsks():
		return g.rejected(tool, why), nil
	}

	return Verdict{Ask: &ApprovalRequest{Tool: tool, Shown: n.Shown, Why: why, Hash: hash, NoStandingApproval: n.NoStandingApproval, Settings: settings}}, nil
}

func (g Authorizer) neverAsks() bool {
	return g.OnDenied == OnDeniedFail || g.OnDenied == OnDeniedContinue
}

func (g Authorizer) rejected(tool, why string) Verdict {
	return refuse(Failure(KindRejected, "%s, and this agent does not ask its owner", why), tool, g.OnDenied == OnDeniedFail)
}

// minTier is the weakest confinement in which a run may start programs.
func (g Authorizer) minTier(taint Taint) string {
	switch {
	case g.MinTier != "":
		return g.MinTier
	case taint&Untrusted != 0:
		return "A"
	}
	return "B"
}

// approvalReasons returns why a call needs an approval, or "", and the settings that would allow it.
func (g Authorizer) approvalReasons(n Access, taint Taint) (reasons string, settings []string) {
	var why []string
	if n.MissingGrant != "" {
		why = append(why, n.MissingGrant)
		settings = append(settings, n.Grant)
	}

	// A run that already holds all three labels does so with its owner's approval. From then on each
	// further effect beyond the host is asked about, and what it reads is not.
	all := taint | n.AddsTaint
	if added := all &^ taint; all == AllTaints && (added != 0 || n.AddsTaint&Outward != 0) {
		why = append(why, fmt.Sprintf("the run would bring together untrusted content (%s), private data (%s) and an external effect (%s)",
			g.origin(Untrusted, n, taint), g.origin(Private, n, taint), g.origin(Outward, n, taint)))
		notPrivate := g.NotPrivate
		if taint&Private == 0 {
			notPrivate = n.NotPrivate
		}
		settings = append(settings, notPrivate)
	}

	if n.NoStandingApproval {
		why = append(why, "it installs software, which is asked about each time")
	}

	if n.NeedsApproval && len(why) == 0 {
		why = append(why, "it is asked for each time")
	}

	settings = slices.DeleteFunc(settings, func(s string) bool { return s == "" })
	return strings.Join(why, "; "), settings
}

// origin describes the origin of one label.
func (g Authorizer) origin(label Taint, n Access, taint Taint) string {
	switch {
	case taint&label == 0, label == Outward && n.AddsTaint&Outward != 0:
		return "this call"
	case g.Met[label] != "":
		return g.Met[label]
	}
	return "earlier in this run"
}

func refuse(e Envelope, tool string, denied bool) Verdict {
	e.Tool = tool
	return Verdict{Refusal: &e, Denied: denied}
}

// ActionHash names an action of an agent: SHA-256 in hexadecimal.
func ActionHash(agent, tool, action string) string {
	h := sha256.New()
	for _, part := range []string{agent, tool, action} {
		// With its length before each part, "ab"+"c" and "a"+"bc" have different hashes.
		fmt.Fprintf(h, "%d:%s,", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}
