# Runs moto with corrections to its CloudFormation: a change set follows from parameters, not only from the template; a
# number equals the text of it; and AWS::NoValue vanishes from lists. What the conditions leave out is removed up front.
from moto.cloudformation import models, parsing


def full(template, given):
    values = {name: p.get("Default", "") for name, p in template.get("Parameters", {}).items()}
    values.update(given or {})
    return {name: str(v) for name, v in values.items()}


def reduced(template, given):
    conditions = template.get("Conditions", {})
    values = full(template, given)

    def text(v):
        return values[v["Ref"]] if isinstance(v, dict) else str(v)

    def holds(condition):
        ((name, args),) = condition.items()
        if name == "Condition":
            return holds(conditions[args])
        if name == "Fn::Equals":
            return text(args[0]) == text(args[1])
        if name == "Fn::Not":
            return not holds(args[0])
        return (all if name == "Fn::And" else any)(holds(one) for one in args)

    def walk(v):
        if isinstance(v, list):
            return [one for one in map(walk, v) if one is not None]
        if not isinstance(v, dict):
            return v
        if v == {"Ref": "AWS::NoValue"}:
            return None
        if "Fn::If" in v:
            name, yes, no = v["Fn::If"]
            return walk(yes if holds(conditions[name]) else no)
        members = {key: walk(one) for key, one in v.items()}
        return {key: one for key, one in members.items() if one is not None}

    out = dict(template)
    for section in ("Resources", "Outputs"):
        out[section] = {
            name: walk({key: v for key, v in one.items() if key != "Condition"})
            for name, one in template.get(section, {}).items()
            if "Condition" not in one or holds(conditions[one["Condition"]])
        }
    return out


parse, apply, create = models.ChangeSet._parse_template, models.ChangeSet.apply, parsing.ResourceMap.create


def parse_reduced(self):
    parse(self)
    self.parameters = full(self.template_dict, self.parameters)
    self.template_dict = reduced(self.template_dict, self.parameters)


def apply_parameters(self):
    apply(self)
    self.stack.parameters = self.parameters


def has_parameters(self, others):
    return full(self.template_dict, self.parameters) == full(self.template_dict, others)


def create_reduced(self, template):
    return create(self, reduced(template, self.input_parameters))


models.ChangeSet._parse_template = parse_reduced
models.ChangeSet.apply = apply_parameters
models.Stack.has_parameters = has_parameters
parsing.ResourceMap.create = create_reduced

from moto.server import main  # noqa: E402

main()
