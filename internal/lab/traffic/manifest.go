package traffic

import (
	"maps"

	"go.yaml.in/yaml/v4"
)

// Manifest returns the scenario's limits, and the entities that have parents, as a manifest for a namespace.
func (p *Plan) Manifest(namespace string) ([]byte, error) {
	doc := maps.Clone(p.Scenario.Limits)
	if doc == nil {
		doc = make(map[string]any)
	}
	entities, _ := doc["entities"].(map[string]any)
	entities = maps.Clone(entities)
	if entities == nil {
		entities = make(map[string]any)
	}
	for _, g := range p.groups {
		if g.Parent == "" {
			continue
		}
		if _, ok := entities[g.Parent]; !ok {
			entities[g.Parent] = map[string]any{}
		}
		for _, id := range g.ids {
			entities[id] = map[string]any{"parent": g.Parent, "cascade": true}
		}
	}
	if len(entities) > 0 {
		doc["entities"] = entities
	}
	doc["namespace"], doc["manifest"] = namespace, "load"
	return yaml.Marshal(doc)
}
