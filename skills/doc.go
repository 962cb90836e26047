// Package skills finds, checks, catalogues and loads skills: directories with a SKILL.md that
// tells an agent how to do something, and with the files that it needs for it.
//
// What a skill says of itself (name, description) is read when it is found; its instructions
// are read when they are asked for, and what lies beside them is listed and never read. Two
// readings of the same file exist. Load is lenient: a skill that people already have works,
// and what is odd about it is a warning. Validate is strict: it holds a skill to the
// AgentSkills standard, and lists all that is wrong at once. Both speak in Problems, each of
// which names its rule, and its file and line where there is one.
//
// A Catalog is what one agent sees: the skills of some roots, of which a later one overrides
// an earlier one by name. Content of a skill is data: it is confined to its directory, links
// that lead out of it are not followed, and everything is bounded.
//
// The package knows nothing of the rest of rouse.
package skills
