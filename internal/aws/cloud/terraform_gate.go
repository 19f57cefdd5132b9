package cloud

func environmentBody(p props, _ string) obj {
	body := p.same("ApplicationId", "Name", "Description")
	var monitors list
	for _, m := range p.all("Monitors") {
		monitors = append(monitors, m.same("AlarmArn", "AlarmRoleArn"))
	}
	if monitors != nil {
		body["monitor"] = monitors
	}
	return body
}

func profileBody(p props, _ string) obj {
	body := p.same("ApplicationId", "Name", "Description", "LocationUri", "Type")
	var validators list
	for _, v := range p.all("Validators") {
		validators = append(validators, v.same("Type", "Content"))
	}
	body["validator"] = validators
	return body
}
