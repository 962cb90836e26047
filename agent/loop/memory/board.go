package memory

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Status is the state of a sub-task.
type Status string

// The values of Status.
const (
	Pending    Status = "pending"
	InProgress Status = "in_progress"
	Done       Status = "done"
	Failed     Status = "failed"
)

// SubTask is a part of a plan. It may start when all its dependencies are done.
type SubTask struct {
	ID        string   `json:"id"`
	Title     string   `json:"title"`
	Status    Status   `json:"status"`
	DependsOn []string `json:"depends_on,omitempty"`
}

// Plan is the plan of a run. Version counts how often it was rewritten.
type Plan struct {
	Goal     string    `json:"goal"`
	SubTasks []SubTask `json:"sub_tasks"`
	Current  string    `json:"current_sub_task,omitempty"`
	Version  int       `json:"plan_version"`
}

// Item is a line of a todo list.
type Item struct {
	Text string
	Done bool
}

var itemLine = regexp.MustCompile(`^ {0,6}- \[([ xX])\] (.*)$`)

// ParseItems parses a todo list. It ignores lines that are not items.
func ParseItems(markdown string) []Item {
	var items []Item
	for line := range strings.Lines(markdown) {
		if m := itemLine.FindStringSubmatch(strings.TrimRight(line, "\r\n")); m != nil {
			items = append(items, Item{strings.TrimSpace(m[2]), m[1] != " "})
		}
	}
	return items
}

// Board holds the plan of a run, which is also its todo list.
type Board struct {
	mu   sync.Mutex
	plan Plan
}

// Plan returns a copy of the current plan.
func (b *Board) Plan() Plan {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.plan
	p.SubTasks = slices.Clone(p.SubTasks)
	return p
}

// SetPlan replaces the plan and starts its first sub-task. It drops dependencies on unknown
// sub-tasks, with a warning.
func (b *Board) SetPlan(goal string, tasks []SubTask) (warnings []string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	known := map[string]bool{}
	for _, t := range tasks {
		known[t.ID] = true
	}

	tasks = slices.Clone(tasks)
	for i := range tasks {
		t := &tasks[i]
		t.Status = Pending
		t.DependsOn = slices.DeleteFunc(slices.Clone(t.DependsOn), func(id string) bool {
			unknown := !known[id] || id == t.ID
			if unknown {
				warnings = append(warnings, fmt.Sprintf("sub-task %s cannot wait for %s, which is no other part of this plan", t.ID, id))
			}
			return unknown
		})
	}

	b.plan = Plan{Goal: goal, SubTasks: tasks, Version: b.plan.Version + 1}
	if stuck := cyclic(tasks); len(stuck) > 0 {
		warnings = append(warnings, "these sub-tasks wait for each other and can never begin: "+strings.Join(stuck, ", "))
	}

	// In a cycle the first sub-task becomes current, because an outcome must belong to a sub-task.
	if _, ok := b.advance(); !ok && len(tasks) > 0 {
		b.plan.Current = tasks[0].ID
	}

	return warnings
}

// cyclic returns the sub-tasks that are part of a dependency cycle or depend on one.
func cyclic(tasks []SubTask) []string {
	done := map[string]bool{}
	// Each round finishes the sub-tasks that have only finished dependencies.
	for range tasks {
		for _, t := range tasks {
			if !slices.ContainsFunc(t.DependsOn, func(id string) bool { return !done[id] }) {
				done[t.ID] = true
			}
		}
	}

	var stuck []string
	for _, t := range tasks {
		if !done[t.ID] {
			stuck = append(stuck, t.ID)
		}
	}

	return stuck
}

// Update sets the status of a sub-task. It returns false if the id is unknown.
func (b *Board) Update(id string, s Status) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	i := slices.IndexFunc(b.plan.SubTasks, func(t SubTask) bool { return t.ID == id })
	if i < 0 {
		return false
	}

	b.plan.SubTasks[i].Status = s
	return true
}

// Advance starts the first pending sub-task without open dependencies. It returns false if there is
// none.
func (b *Board) Advance() (SubTask, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.advance()
}

func (b *Board) advance() (SubTask, bool) {
	status := map[string]Status{}
	for _, t := range b.plan.SubTasks {
		status[t.ID] = t.Status
	}

	for i := range b.plan.SubTasks {
		t := &b.plan.SubTasks[i]
		if t.Status != Pending || slices.ContainsFunc(t.DependsOn, func(id string) bool { return status[id] != Done }) {
			continue
		}
		t.Status, b.plan.Current = InProgress, t.ID
		return *t, true
	}

	// A sub-task that failed or still waits stays current.
	if status[b.plan.Current] == Done {
		b.plan.Current = ""
	}

	return SubTask{}, false
}

// SetItems replaces the list. A sub-task with the same text keeps its id and its dependencies.
func (b *Board) SetItems(items []Item) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if slices.Equal(items, b.todoItems()) {
		return
	}

	before, taken, next := b.plan.SubTasks, map[string]bool{}, 1
	for _, t := range before {
		taken[t.ID] = true
	}

	// Several items may have the same text. Each takes over the first unused sub-task with that
	// text.
	used, kept := make([]bool, len(before)), map[string]bool{}
	var tasks []SubTask
	for _, it := range items {
		t := SubTask{Title: it.Text, Status: Pending}
		for i, old := range before {
			if !used[i] && old.Title == it.Text {
				used[i], t = true, old
				break
			}
		}

		for t.ID == "" {
			if id := strconv.Itoa(next); !taken[id] {
				t.ID, taken[id] = id, true
			}
			next++
		}

		// An open item keeps a status that a checklist cannot express: in progress or failed.
		switch {
		case it.Done:
			t.Status = Done
		case t.Status == Done:
			t.Status = Pending
		}

		kept[t.ID] = true
		tasks = append(tasks, t)
	}

	for i := range tasks {
		tasks[i].DependsOn = slices.DeleteFunc(slices.Clone(tasks[i].DependsOn), func(id string) bool { return !kept[id] })
	}

	b.plan.SubTasks = tasks
	b.plan.Version++
	if i := slices.IndexFunc(tasks, func(t SubTask) bool { return t.ID == b.plan.Current }); i < 0 || tasks[i].Status == Done || tasks[i].Status == Pending {
		b.plan.Current = ""
		if i := slices.IndexFunc(tasks, func(t SubTask) bool { return t.Status == InProgress }); i >= 0 {
			b.plan.Current = tasks[i].ID
		} else {
			b.advance()
		}
	}
}

func (b *Board) todoItems() []Item {
	var items []Item
	for _, t := range b.plan.SubTasks {
		items = append(items, Item{t.Title, t.Status == Done})
	}
	return items
}

// OpenItems returns the number of items that are not done.
func (b *Board) OpenItems() int {
	b.mu.Lock()
	defer b.mu.Unlock()

	open := 0
	for _, t := range b.plan.SubTasks {
		if t.Status != Done {
			open++
		}
	}
	return open
}
