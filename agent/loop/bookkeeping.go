package loop

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/jsonread"
)

// bookkeeping records the results, failures and repetitions of a run.
type bookkeeping struct {
	results map[string]heldResult // valid results of reading calls, by signature
	failed  map[string]*heldFailure

	listings  int  // listings since the last file was read
	truncated bool // the last listing was incomplete

	last   string // signature of the last call that was not for reading
	streak int    // number of consecutive calls with that signature
	plans  int    // consecutive planning calls

	refusal refusalStreak

	seen     map[string]bool        // calls together with their results
	repeated map[string]*sameResult // by signature of the call
	stuck    *sameResult            // most repeated call since the last new result

	openItems, stepsSinceTodo int // open items of the todo list, and steps since it was written
}

// heldResult is a result that is reused for later calls with the same signature. Its text is shared
// with the message.
type heldResult struct {
	text      string // envelope without its images
	images    []model.Image
	path      string
	pathState string
}

// envelope decodes the result. It returns false if that fails, so that the call is made again.
func (h heldResult) envelope() (e tool.Envelope, ok bool) {
	if err := json.Unmarshal([]byte(h.text), &e); err != nil {
		return tool.Envelope{}, false
	}
	e.Images, e.Now = h.images, "" // Now is the time of the first call
	return e, true
}

type heldFailure struct {
	heldResult
	times int
}

func newBookkeeping() *bookkeeping {
	return &bookkeeping{results: map[string]heldResult{}, failed: map[string]*heldFailure{}, seen: map[string]bool{}, repeated: map[string]*sameResult{}}
}

// signature identifies a call by its tool and its arguments. The order of the arguments does not
// matter.
func signature(c model.Call) string {
	var args any
	// Marshal sorts the keys of objects.
	if jsonread.UnmarshalNumbers(c.Args, &args) == nil {
		if text, err := json.Marshal(args); err == nil {
			return c.Name + " " + string(text)
		}
	}
	return c.Name + " " + string(c.Args)
}

func readsFiles(c tool.Class) bool {
	return c == tool.ClassRead || c == tool.ClassList || c == tool.ClassSearch
}

// holdsErrors reports whether errors of a class repeat while arguments and files stay the same.
func holdsErrors(c tool.Class) bool {
	return readsFiles(c) || c == tool.ClassEdit || c == tool.ClassLoad
}

// lookup returns the known result of a call. Results are valid while the path is unchanged. times
// is the number of failures of the call, or 0 if the result is not a failure.
func (s *bookkeeping) lookup(t tool.Tool, c model.Call, sig string) (e tool.Envelope, times int, ok bool) {
	if f := s.failed[sig]; f != nil && f.pathState == t.StatKey(c.Args) {
		if e, ok = f.envelope(); ok {
			f.times++
			return e, f.times, true
		}
	}

	if h, known := s.results[sig]; known && h.pathState == t.StatKey(c.Args) {
		if e, ok = h.envelope(); ok {
			return e, 0, true
		}
	}

	return tool.Envelope{}, 0, false
}

// record stores the result of a call and its text. pathState is the state of its path before the
// call.
func (s *bookkeeping) record(t tool.Tool, c model.Call, sig string, e tool.Envelope, text, pathState string) {
	switch class := t.Class(); {
	case !e.OK && holdsErrors(class) && (e.Kind == tool.KindInvalidArgs || e.Kind == tool.KindNotFound):
		f := &heldFailure{heldResult: heldResult{text, e.Images, t.TargetPath(c.Args), pathState}, times: 1}
		if before := s.failed[sig]; before != nil && before.pathState == pathState {
			f.times = before.times
		}
		s.failed[sig] = f
		return
	case !e.OK && class != tool.ClassExec: // a failed command may have changed files
		return
	case readsFiles(class):
		s.results[sig] = heldResult{text, e.Images, t.TargetPath(c.Args), pathState}
	case class == tool.ClassEdit:
		s.invalidate(t.TargetPath(c.Args))
	case class == tool.ClassExec: // a command may have changed any file
		clear(s.results)
		clear(s.failed)
	}
}

// invalidate drops the results about a path and its parent folders, and the results of all
// searches.
func (s *bookkeeping) invalidate(path string) {
	stale := func(h heldResult) bool {
		return h.path == "" || h.path == path || strings.HasPrefix(path, strings.TrimSuffix(h.path, string(filepath.Separator))+string(filepath.Separator))
	}
	for sig, h := range s.results {
		if stale(h) {
			delete(s.results, sig)
		}
	}

	for sig, f := range s.failed {
		if stale(f.heldResult) {
			delete(s.failed, sig)
		}
	}
}

// readingResult holds the fields of a reading call's result that describe its kind.
type readingResult struct {
	Kind      string            `json:"kind"`
	Entries   []json.RawMessage `json:"entries"`
	Truncated bool              `json:"truncated"`
}

// advise returns advice after a call, or "".
func (s *bookkeeping) advise(t tool.Tool, c model.Call, e tool.Envelope) string {
	if readsFiles(t.Class()) {
		return s.adviseReading(t.Class(), e)
	}

	if t.Class() == tool.ClassPlan {
		if s.plans++; s.plans == maxRepeats {
			return "You have written your plan several times in a row without acting on it. Take its next step now."
		}
		return ""
	}

	s.plans = 0
	sig := signature(c)
	if sig != s.last {
		s.last, s.streak = sig, 0
	}
	switch s.streak++; {
	case s.streak < maxRepeats:
	case !e.OK: // including calls that would have ended the run
		return fmt.Sprintf("You have made the same %s call %d times in a row, and it failed again: %s Change its arguments, or do something else.", c.Name, s.streak, sentence(e.Message))
	default:
		return "You have made the same " + c.Name + " call several times in a row. Do something else, or end the run."
	}

	return ""
}

// streakOf returns the tool of the call that the run was repeating last, and the number of
// repetitions. It returns 0 if the model has not been told.
func (s *bookkeeping) streakOf() (name string, times int) {
	if s.streak < maxRepeats {
		return "", 0
	}
	name, _, _ = strings.Cut(s.last, " ")
	return name, s.streak
}

const maxRepeats = 3

// maxRefusals is the number of consecutive refusals of the same call that ends the run.
const maxRefusals = 5

// refusalStreak counts consecutive model answers in which the same call was refused.
type refusalStreak struct {
	sig     string // of the call; empty without a refusal
	times   int
	call    model.Call
	refusal string
}

// maxSameResults is the number of times a call may get the same result without any new result in
// between.
const maxSameResults = 10

type sameResult struct {
	call   model.Call
	result [sha256.Size]byte
	times  int
}

// noteResults counts the results of an answer. A new result resets all counts.
func (s *bookkeeping) noteResults(calls []model.Call, envelopes []tool.Envelope) {
	counted := map[string]bool{}
	s.stuck = nil
	for i, c := range calls {
		e, sig := envelopes[i], signature(c)
		result := sha256.Sum256(fmt.Appendf(nil, "%t %s %s %s", e.OK, e.Kind, e.Message, e.Result))
		if key := sig + string(result[:]); !s.seen[key] {
			s.seen[key] = true
			clear(s.repeated)
		}

		r := s.repeated[sig]
		if r == nil || r.result != result {
			r = &sameResult{call: c, result: result}
			s.repeated[sig] = r
		}
		if !counted[sig] { // once per answer, because the model has not read the first result yet
			counted[sig] = true
			r.times++
		}
		if s.stuck == nil || r.times > s.stuck.times {
			s.stuck = r
		}
	}
}

// isRefusal reports whether repeating the call would get the same result, regardless of other
// calls.
func isRefusal(k tool.Kind) bool {
	return k == tool.KindRejected || k == tool.KindUserDenied || k == tool.KindInvalidArgs || k == tool.KindToolNotFound
}

// noteRefusals updates the streak with the results of an answer, and reports whether a call was
// refused. Successful reading and planning do not end a streak.
func (s *bookkeeping) noteRefusals(calls []model.Call, envelopes []tool.Envelope, class func(model.Call) tool.Class) (again bool) {
	for i, c := range calls {
		e, sig := envelopes[i], signature(c)
		switch {
		case !e.OK && isRefusal(e.Kind) && sig == s.refusal.sig:
			again = true
			s.refusal.refusal = e.Message
		case !e.OK && isRefusal(e.Kind):
			s.refusal, again = refusalStreak{sig: sig, call: c, refusal: e.Message}, true
		case !e.OK || !readsFiles(class(c)) && class(c) != tool.ClassPlan:
			s.refusal, again = refusalStreak{}, false
		}
	}
	if again { // once per answer, because the model has not read the refusal yet
		s.refusal.times++
	}
	return again
}

func (s *bookkeeping) adviseReading(class tool.Class, e tool.Envelope) string {
	if !e.OK {
		switch {
		case e.Kind != tool.KindNotFound:
			return ""
		case s.truncated:
			return "That path does not exist, and the last listing was not whole: list the folder itself, or one further down, before you name another path."
		}
		return "That path does not exist. Use a path as a listing gave it; do not guess one."
	}

	var r readingResult
	// Most results are long and are not listings: a search is cheaper than parsing them.
	if !bytes.Contains(e.Result, []byte(`"listing"`)) || json.Unmarshal(e.Result, &r) != nil || r.Kind != "listing" {
		if class == tool.ClassRead { // a file of any format
			s.listings, s.truncated = 0, false
		}
		return ""
	}

	s.listings++
	s.truncated = r.Truncated
	switch {
	case s.listings < 2:
		return ""
	case r.Truncated:
		return "The listing was not whole. List a folder further down, or search for the file that you need."
	case len(r.Entries) == 0:
		return "The folder is empty. Do not make up what is not there: say so, or look elsewhere."
	}
	return "You have listed folders several times and read nothing. Read one of the files, by its path in the listing."
}

func (s *bookkeeping) todoWritten(e tool.Envelope) {
	var list struct {
		Open int `json:"open"`
	}
	if e.OK && json.Unmarshal(e.Result, &list) == nil {
		s.openItems, s.stepsSinceTodo = list.Open, 0
	}
}
