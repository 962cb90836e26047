package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Values of on_denied: the treatment of a call that needs its owner's approval.
const (
	OnDeniedPark     = "park"     // the run waits for the approval
	OnDeniedFail     = "fail"     // the call is refused and the run ends
	OnDeniedContinue = "continue" // the call is refused and the run continues
)

// Authorizer applies the rules of an agent to the Access of its calls. It keeps no state: the
// caller supplies the taint of the run and the decisions of the owner.
type Authorizer struct {
	Agent    string
	OnDenied string // "" means OnDeniedPark
	// MinTier is the weakest allowed sandbox tier of programs. Empty means A if the run holds
	// untrusted content, and B otherwise.
	MinTier string
	// Met describes the origin of each label of the run. NotPrivate is the Access.NotPrivate of the
	// run's private data.
	Met        map[Taint]string
	NotPrivate string
}

// OwnerDecision is the owner's decision about an action. The zero value means no decision.
type OwnerDecision struct {
	Standing bool // approved until revoked
	Once     bool // approved for this call
	Denied   bool // denied in this run
	Reason   string
}

// Verdict is the authorizer's decision about a call. The call may be made unless Refusal or Ask is
// set.
type Verdict struct {
	Refusal *Envelope // answer to a refused call
	Denied  bool      // later calls of the same model answer are not made either
	Ask     *ApprovalRequest
	// Approved is the hash of the action that the owner approved, or "" if no approval was needed.
	Approved string
}

// ApprovalRequest is a request for the owner's approval of a call.
type ApprovalRequest struct {
	Call, Tool         string   // key of the call and name of the tool
	Shown              string   // exact action for display
	Why                string   // reasons for which the call needs an approval
	Hash               string   // hash of the action; the answer applies only to this action
	NoStandingApproval bool     // a standing approval is not possible
	Settings           []string // settings or commands that would allow the call without an approval
}

// Decide returns the verdict about a call. It checks in this order: refusal, denial, grant, tier,
// approval. taint is the taint of the run before the call. said returns the owner's decision about
// an action. It is called only if the action needs an approval. Decide returns an error only if
// said or Bind fails.
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
	// The tier is checked before the approval, even if the call is already approved: the owner must
	// not be asked about a program that cannot start here. The labels of this call count, because
	// the program reads the data. Tiers compare as letters, and A is the strongest. "" means no
	// program.
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

// minTier returns the weakest sandbox tier in which a run may start programs.
func (g Authorizer) minTier(taint Taint) string {
	switch {
	case g.MinTier != "":
		return g.MinTier
	case taint&Untrusted != 0:
		return "A"
	}
	return "B"
}

// approvalReasons returns the reasons for which a call needs an approval, or "" if it does not need
// one. settings are the settings that would allow the call.
func (g Authorizer) approvalReasons(n Access, taint Taint) (reasons string, settings []string) {
	var why []string
	if n.MissingGrant != "" {
		why = append(why, n.MissingGrant)
		settings = append(settings, n.Grant)
	}

	// If a run already holds all three labels, its owner has approved that. From then on, each
	// outward call needs an approval, but reads do not.
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

// origin returns a description of the origin of one label.
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

// ActionHash returns the hexadecimal SHA-256 hash that identifies an action of an agent.
func ActionHash(agent, tool, action string) string {
	h := sha256.New()
	for _, part := range []string{agent, tool, action} {
		// The length before each part gives "ab"+"c" and "a"+"bc" different hashes.
		fmt.Fprintf(h, "%d:%s,", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}
