package skill

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/skills"
)

// Options are what the tools of one run reach.
type Options struct {
	View skills.View
	// Verify says why a skill must not be used now, nil when it may be.
	Verify func(*skills.Skill) error
	Loaded *Loaded        // by earlier attempts, or by the prompt; nil: none
	Tools  *tool.Registry // what a search finds beside skills
	Apart  []string       // those of Tools that the model is not told of
	Denied []string       // tools that exist and that the agent may not have
}

// Loaded are the skills that the model of a run has read.
type Loaded struct {
	mu    sync.Mutex
	names map[string]bool
}

// NewLoaded are skills by their names.
func NewLoaded(names ...string) *Loaded {
	l := &Loaded{names: map[string]bool{}}
	for _, name := range names {
		l.names[name] = true
	}
	return l
}

// Has says whether a skill was read.
func (l *Loaded) Has(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.names[name]
}

func (l *Loaded) add(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names[name] = true
}

// Shelf is the skills of one run, and which of them its model has read.
type Shelf struct {
	Options
	mu     sync.Mutex            // one is loaded at a time
	finder func() *skills.Finder // made when it is first needed
}

// New gives the shelf of a run.
func New(o Options) *Shelf {
	if o.Loaded == nil {
		o.Loaded = NewLoaded()
	}
	s := &Shelf{Options: o}
	s.finder = sync.OnceValue(func() *skills.Finder { return skills.NewFinder(s.entries()) })
	return s
}

// loaded is what a model hears when it loads skills. The loop keeps results that have
// skill_content in the context (AGS-12).
type loaded struct {
	Skill   string `json:"skill,omitempty"`
	Content string `json:"skill_content,omitempty"`
	Note    string `json:"note,omitempty"`
}

// load gives the content of a skill, or says that it was given before (AGS-12).
func (s *Shelf) load(nameOrPath string, again bool) tool.Envelope {
	sk, err := s.View.Find(nameOrPath)
	switch {
	case errors.Is(err, skills.ErrNotGranted):
		return tool.Failure(tool.KindRejected, "%v; its owner can name it under the agent's skills", err)
	case err != nil:
		return s.unknownSkill(nameOrPath, err)
	}

	if s.Verify != nil {
		if err := s.Verify(sk); err != nil {
			return tool.Failure(tool.KindRejected, "%v", err)
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.Loaded.Has(sk.Name) && !again {
		return tool.Success(loaded{Skill: sk.Name, Note: "is loaded already; its instructions stand above. If you cannot see them any more, load it with again: true"})
	}

	text, err := sk.Content()
	if err != nil {
		return tool.Failure(tool.KindUnavailable, "the skill %s cannot be read: %v", sk.Name, err)
	}

	s.Loaded.add(sk.Name)
	return tool.Success(loaded{Skill: sk.Name, Content: text})
}

// unknownSkill names the nearest skills to a name that is none.
func (s *Shelf) unknownSkill(name string, err error) tool.Envelope {
	const most = 20
	all := s.View.All()
	var names []string
	for _, sk := range all[:min(len(all), most)] {
		names = append(names, sk.Name)
	}

	say := "the skills are " + strings.Join(names, ", ")
	if len(all) > most {
		say = fmt.Sprintf("there are %d skills; find one with %s", len(all), discoverSpec.Name)
	}
	return tool.Failure(tool.KindNotFound, "%v; %s", err, say)
}

// Reading answers a reading of the whole SKILL.md of a skill as the loading of the skill that
// it is; false for any other path.
func (s *Shelf) Reading(path string) (tool.Envelope, bool) {
	for _, sk := range s.View.All() {
		if path == sk.File {
			return s.load(sk.Name, true), true
		}
	}
	return tool.Envelope{}, false
}

// LoadedIn lists the skills that a transcript shows to have been loaded, so that an attempt
// that goes on from it knows of them.
func LoadedIn(messages []model.Message) []string {
	var out []string
	for _, m := range messages {
		if m.Role != model.RoleTool || !strings.Contains(m.Text, `"skill_content":`) {
			continue
		}

		var e tool.Envelope
		var l struct {
			Skill  string   `json:"skill"`
			Loaded []string `json:"loaded"`
		}
		if json.Unmarshal([]byte(m.Text), &e) != nil || !e.OK || json.Unmarshal(e.Result, &l) != nil {
			continue
		}

		if l.Skill != "" {
			out = append(out, l.Skill)
		}

		for _, id := range l.Loaded {
			if name, ok := strings.CutPrefix(id, skillPrefix); ok {
				out = append(out, name)
			}
		}
	}

	return out
}
