package cloud

import "strings"

func tableBody(p props, _ string) obj {
	var names, all list
	for _, a := range p.all("AttributeDefinitions") {
		names = append(names, obj{"name": a.of["AttributeName"], "type": a.of["AttributeType"]})
	}
	throughput := func(of props) obj {
		t := of.in("ProvisionedThroughput")
		return obj{"read_capacity": t.of["ReadCapacityUnits"], "write_capacity": t.of["WriteCapacityUnits"]}
	}
	provisioned := p.of["BillingMode"] == "PROVISIONED"
	for _, ix := range p.all("GlobalSecondaryIndexes") {
		one := with(keysBody(ix), obj{"name": ix.of["IndexName"], "projection_type": ix.get("Projection", "ProjectionType")})
		if provisioned {
			with(one, throughput(ix))
		}
		all = append(all, one)
	}
	body := with(keysBody(p), obj{
		"name": p.of["TableName"], "billing_mode": p.of["BillingMode"], "attribute": names, "global_secondary_index": all,
		"stream_enabled": true, "stream_view_type": p.get("StreamSpecification", "StreamViewType"),
		"ttl":                         obj{"attribute_name": p.get("TimeToLiveSpecification", "AttributeName"), "enabled": true},
		"deletion_protection_enabled": p.of["DeletionProtectionEnabled"],
	})
	backups := p.in("PointInTimeRecoverySpecification")
	recovery := obj{"enabled": backups.of["PointInTimeRecoveryEnabled"]}
	if days, ok := backups.of["RecoveryPeriodInDays"]; ok {
		recovery["recovery_period_in_days"] = days
	}
	body["point_in_time_recovery"] = recovery
	if key := p.get("SSESpecification", "KMSMasterKeyId"); key != nil {
		body["server_side_encryption"] = obj{"enabled": true, "kms_key_arn": key}
	}
	if provisioned {
		with(body, throughput(p))
	}
	return body
}

func keysBody(p props) obj {
	keys := p.all("KeySchema")
	return obj{"hash_key": keys[0].of["AttributeName"], "range_key": keys[1].of["AttributeName"]}
}

func scalingBody(p props, id string) obj {
	target := "${aws_appautoscaling_target." + snake(strings.TrimSuffix(id, "Scaling")+"Range")
	tracking := p.in("TargetTrackingScalingPolicyConfiguration")
	return obj{
		"name": p.of["PolicyName"], "policy_type": p.of["PolicyType"],
		"service_namespace": target + ".service_namespace}", "resource_id": target + ".resource_id}", "scalable_dimension": target + ".scalable_dimension}",
		"target_tracking_scaling_policy_configuration": with(tracking.same("TargetValue", "ScaleInCooldown", "ScaleOutCooldown"), obj{
			"predefined_metric_specification": tracking.in("PredefinedMetricSpecification").same("PredefinedMetricType"),
		}),
	}
}

// bucketBody also adds the bucket properties that are separate resources in Terraform.
func bucketBody(p props, id string) obj {
	own := "${aws_s3_bucket." + snake(id) + ".bucket}"
	put := func(typ string, body obj) { p.module.put(typ, snake(id), with(body, obj{"bucket": own})) }
	put("aws_s3_bucket_versioning", obj{"versioning_configuration": obj{"status": p.get("VersioningConfiguration", "Status")}})
	put("aws_s3_bucket_public_access_block", p.in("PublicAccessBlockConfiguration").same("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"))
	put("aws_s3_bucket_ownership_controls", obj{"rule": obj{"object_ownership": p.in("OwnershipControls").all("Rules")[0].of["ObjectOwnership"]}})
	sse := p.in("BucketEncryption").all("ServerSideEncryptionConfiguration")[0]
	by := sse.in("ServerSideEncryptionByDefault")
	algorithm := obj{"sse_algorithm": by.of["SSEAlgorithm"]}
	if key := by.of["KMSMasterKeyID"]; key != nil {
		algorithm["kms_master_key_id"] = key
	}
	put("aws_s3_bucket_server_side_encryption_configuration", obj{"rule": obj{
		"apply_server_side_encryption_by_default": algorithm, "bucket_key_enabled": sse.of["BucketKeyEnabled"],
	}})
	var rules list
	for _, r := range p.in("LifecycleConfiguration").all("Rules") {
		rule := obj{"id": r.of["Id"], "status": r.of["Status"], "filter": obj{"prefix": ""}}
		if prefix := r.of["Prefix"]; prefix != nil {
			rule["filter"] = obj{"prefix": prefix}
		}
		if days := r.get("AbortIncompleteMultipartUpload", "DaysAfterInitiation"); days != nil {
			rule["abort_incomplete_multipart_upload"] = obj{"days_after_initiation": days}
		}
		if days := r.get("NoncurrentVersionExpiration", "NoncurrentDays"); days != nil {
			rule["noncurrent_version_expiration"] = obj{"noncurrent_days": days}
		}
		for _, t := range r.all("Transitions") {
			rule["transition"] = obj{"storage_class": t.of["StorageClass"], "days": t.of["TransitionInDays"]}
		}
		if days := r.of["ExpirationInDays"]; days != nil {
			rule["expiration"] = obj{"days": days}
		}
		rules = append(rules, rule)
	}
	put("aws_s3_bucket_lifecycle_configuration", obj{"rule": rules})
	return obj{"bucket_prefix": strings.ToLower(p.module.stack.name[:min(len(p.module.stack.name), 28)]) + "-archive-"}
}

func functionBody(p props, _ string) obj {
	body := with(p.same("FunctionName", "Description", "Role", "Runtime", "Handler", "Architectures", "MemorySize", "Timeout", "ReservedConcurrentExecutions"), obj{
		"s3_bucket": p.get("Code", "S3Bucket"), "s3_key": p.get("Code", "S3Key"),
		"environment":    obj{"variables": p.get("Environment", "Variables")},
		"logging_config": obj{"log_format": "Text", "log_group": p.get("LoggingConfig", "LogGroup")},
	})
	if mode := p.get("TracingConfig", "Mode"); mode != nil {
		body["tracing_config"] = obj{"mode": mode}
	}
	return body
}

func sourceBody(p props, _ string) obj {
	var filters list
	for _, f := range p.in("FilterCriteria").all("Filters") {
		filters = append(filters, obj{"pattern": f.of["Pattern"]})
	}
	return with(p.same("FunctionName", "EventSourceArn", "StartingPosition", "BatchSize", "MaximumBatchingWindowInSeconds", "ParallelizationFactor",
		"BisectBatchOnFunctionError", "FunctionResponseTypes", "MaximumRetryAttempts", "MaximumRecordAgeInSeconds"), obj{
		"destination_config": obj{"on_failure": obj{"destination_arn": p.in("DestinationConfig").get("OnFailure", "Destination")}},
		"filter_criteria":    obj{"filter": filters},
		"metrics_config":     obj{"metrics": p.get("MetricsConfig", "Metrics")},
	})
}

// roleBody also adds the role's own policies and attachments.
func roleBody(p props, id string) obj {
	own := "${aws_iam_role." + snake(id) + ".name}"
	for _, policy := range p.all("Policies") {
		p.module.put("aws_iam_role_policy", snake(id), obj{"name": policy.of["PolicyName"], "role": own, "policy": policy.text("PolicyDocument")})
	}
	attached, _ := p.of["ManagedPolicyArns"].(list)
	for _, arn := range attached {
		p.module.put("aws_iam_role_policy_attachment", snake(id), obj{"role": own, "policy_arn": arn})
	}
	return obj{"name": p.of["RoleName"], "assume_role_policy": p.text("AssumeRolePolicyDocument"), "permissions_boundary": p.of["PermissionsBoundary"]}
}

func alarmBody(p props, _ string) obj {
	dimensions := obj{}
	for _, d := range p.all("Dimensions") {
		dimensions[d.of["Name"].(string)] = d.of["Value"]
	}
	return with(p.same("AlarmName", "AlarmDescription", "Namespace", "MetricName", "Statistic", "Period", "EvaluationPeriods", "Threshold",
		"ComparisonOperator", "TreatMissingData", "AlarmActions"), obj{"dimensions": dimensions, "ok_actions": p.of["OKActions"]})
}
