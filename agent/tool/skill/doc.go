// Package skill loads the skills of an agent for its model: by name, or found by a search. There are
// three ways to load one, and they do the same (UNI-07): load_skill, capabilities_load with skill/NAME,
// and reading its SKILL.md.
package skill
