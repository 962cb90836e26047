// Package skill contains the tools that find skills and load them into a model's context. A skill
// can be loaded in three equivalent ways: with load_skill, with capabilities_load and the id
// skill/NAME, or by reading its SKILL.md.
package skill
