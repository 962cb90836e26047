// Package skill gives a model the skills of its agent: one that it knows by name, and those
// that it finds by a search. To load one is the same in three ways (UNI-07): load_skill,
// capabilities_load with skill/NAME, and reading its SKILL.md.
package skill
