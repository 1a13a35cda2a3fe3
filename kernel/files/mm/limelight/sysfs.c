// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/mm/limelight: state and tunables.
 *
 * Values written here persist. Values set through the device are undone when the
 * device is closed. Reads have no side effects.
 *
 * Only root can read files that reveal when the user works or switches apps.
 */
#include <linux/kobject.h>
#include <linux/kstrtox.h>
#include <linux/limelight.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "internal.h"
#include "prezero.h"

static ssize_t generation_show(struct kobject *kobj,
			       struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n", READ_ONCE(limelight_generation));
}

static struct kobj_attribute generation_attr = __ATTR_RO_MODE(generation, 0400);

static ssize_t members_show(struct kobject *kobj, struct kobj_attribute *attr,
			    char *buf)
{
	struct limelight_usage usage;

	limelight_usage(&usage);
	return sysfs_emit(buf, "%u\n", usage.members);
}

static struct kobj_attribute members_attr = __ATTR_RO_MODE(members, 0400);

static ssize_t windows_opened_show(struct kobject *kobj,
				   struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%ld\n", atomic_long_read(&limelight_windows_opened));
}

static struct kobj_attribute windows_opened_attr =
	__ATTR_RO_MODE(windows_opened, 0400);

static ssize_t windows_expired_show(struct kobject *kobj,
				    struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%ld\n", atomic_long_read(&limelight_windows_expired));
}

static struct kobj_attribute windows_expired_attr =
	__ATTR_RO_MODE(windows_expired, 0400);

static struct attribute *core_attrs[] = {
	&generation_attr.attr,
	&members_attr.attr,
	&windows_opened_attr.attr,
	&windows_expired_attr.attr,
	NULL,
};

static const struct attribute_group core_group = {
	.attrs = core_attrs,
};

#ifdef CONFIG_LIMELIGHT_PROTECT

static unsigned long pages_to_kb(unsigned long pages)
{
	return pages << (PAGE_SHIFT - 10);
}

static ssize_t enabled_show(struct kobject *kobj, struct kobj_attribute *attr,
			    char *buf)
{
	return sysfs_emit(buf, "%d\n", limelight_protect_enabled());
}

static struct kobj_attribute enabled_attr = __ATTR_RO(enabled);

static ssize_t budget_percent_show(struct kobject *kobj,
				   struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(limelight_budget_percent));
}

static ssize_t budget_percent_store(struct kobject *kobj,
				    struct kobj_attribute *attr,
				    const char *buf, size_t count)
{
	unsigned int percent;
	int ret;

	ret = kstrtouint(buf, 0, &percent);
	if (!ret)
		ret = limelight_budget_set(percent, true);
	return ret ?: count;
}

static struct kobj_attribute budget_percent_attr = __ATTR_RW(budget_percent);

static ssize_t budget_kb_show(struct kobject *kobj, struct kobj_attribute *attr,
			      char *buf)
{
	return sysfs_emit(buf, "%lu\n", pages_to_kb(limelight_budget_pages()));
}

static struct kobj_attribute budget_kb_attr = __ATTR_RO(budget_kb);

static ssize_t footprint_kb_show(struct kobject *kobj,
				 struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lu\n",
			  pages_to_kb(limelight_footprint_mapped() +
				      limelight_footprint_cached()));
}

static struct kobj_attribute footprint_kb_attr = __ATTR_RO_MODE(footprint_kb, 0400);

static ssize_t cached_kb_show(struct kobject *kobj, struct kobj_attribute *attr,
			      char *buf)
{
	return sysfs_emit(buf, "%lu\n",
			  pages_to_kb(limelight_footprint_cached()));
}

static struct kobj_attribute cached_kb_attr = __ATTR_RO_MODE(cached_kb, 0400);

static ssize_t suspended_ms_show(struct kobject *kobj,
				 struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", limelight_protect_suspended_ms());
}

static struct kobj_attribute suspended_ms_attr = __ATTR_RO(suspended_ms);

static struct attribute *protect_attrs[] = {
	&enabled_attr.attr,
	&budget_percent_attr.attr,
	&budget_kb_attr.attr,
	&footprint_kb_attr.attr,
	&cached_kb_attr.attr,
	&suspended_ms_attr.attr,
	NULL,
};

static const struct attribute_group protect_group = {
	.name = "protect",
	.attrs = protect_attrs,
};

#endif /* CONFIG_LIMELIGHT_PROTECT */

#ifdef CONFIG_LIMELIGHT_PREMAP

static ssize_t premap_enabled_show(struct kobject *kobj,
				   struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", limelight_premap_enabled());
}

static struct kobj_attribute premap_enabled_attr =
	__ATTR(enabled, 0444, premap_enabled_show, NULL);

static ssize_t window_pages_show(struct kobject *kobj,
				 struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(limelight_window_pages));
}

static ssize_t window_pages_store(struct kobject *kobj,
				  struct kobj_attribute *attr,
				  const char *buf, size_t count)
{
	unsigned int pages;
	int ret;

	ret = kstrtouint(buf, 0, &pages);
	if (!ret)
		ret = limelight_window_set(pages, true);
	return ret ?: count;
}

static struct kobj_attribute window_pages_attr = __ATTR_RW(window_pages);

static ssize_t folio_order_show(struct kobject *kobj,
				struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(limelight_folio_order));
}

static ssize_t folio_order_store(struct kobject *kobj,
				 struct kobj_attribute *attr,
				 const char *buf, size_t count)
{
	unsigned int order;
	int ret;

	ret = kstrtouint(buf, 0, &order);
	if (!ret)
		ret = limelight_folio_order_set(order);
	return ret ?: count;
}

static struct kobj_attribute folio_order_attr = __ATTR_RW(folio_order);

static struct attribute *premap_attrs[] = {
	&premap_enabled_attr.attr,
	&window_pages_attr.attr,
	&folio_order_attr.attr,
	NULL,
};

static const struct attribute_group premap_group = {
	.name = "premap",
	.attrs = premap_attrs,
};

#endif /* CONFIG_LIMELIGHT_PREMAP */

#ifdef CONFIG_LIMELIGHT_READAHEAD

static ssize_t readahead_enabled_show(struct kobject *kobj,
				      struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", limelight_readahead_enabled());
}

static struct kobj_attribute readahead_enabled_attr =
	__ATTR(enabled, 0444, readahead_enabled_show, NULL);

static ssize_t factor_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(limelight_factor));
}

static ssize_t factor_store(struct kobject *kobj, struct kobj_attribute *attr,
			    const char *buf, size_t count)
{
	unsigned int factor;
	int ret;

	ret = kstrtouint(buf, 0, &factor);
	if (!ret)
		ret = limelight_factor_set(factor, true);
	return ret ?: count;
}

static struct kobj_attribute factor_attr = __ATTR_RW(factor);

static ssize_t stream_factor_show(struct kobject *kobj,
				  struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n",
			  limelight_readahead_factor(LIMELIGHT_RA_STREAM));
}

static struct kobj_attribute stream_factor_attr = __ATTR_RO(stream_factor);

static ssize_t around_factor_show(struct kobject *kobj,
				  struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n",
			  limelight_readahead_factor(LIMELIGHT_RA_AROUND));
}

static struct kobj_attribute around_factor_attr = __ATTR_RO(around_factor);

static ssize_t neighbours_factor_show(struct kobject *kobj,
				      struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n",
			  limelight_readahead_factor(LIMELIGHT_RA_NEIGHBOURS));
}

static struct kobj_attribute neighbours_factor_attr =
	__ATTR_RO(neighbours_factor);

static struct attribute *readahead_attrs[] = {
	&readahead_enabled_attr.attr,
	&factor_attr.attr,
	&stream_factor_attr.attr,
	&around_factor_attr.attr,
	&neighbours_factor_attr.attr,
	NULL,
};

static const struct attribute_group readahead_group = {
	.name = "readahead",
	.attrs = readahead_attrs,
};

#endif /* CONFIG_LIMELIGHT_READAHEAD */

#ifdef CONFIG_LIMELIGHT_PREZERO

static ssize_t prezero_enabled_show(struct kobject *kobj,
				    struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", limelight_prezero_enabled());
}

static struct kobj_attribute prezero_enabled_attr =
	__ATTR(enabled, 0444, prezero_enabled_show, NULL);

static ssize_t target_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf)
{
	return sysfs_emit(buf, "%lu\n", limelight_prezero_target());
}

static struct kobj_attribute target_attr = __ATTR_RO(target);

static ssize_t pooled_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf)
{
	return sysfs_emit(buf, "%lu\n", limelight_prezero_pooled());
}

static struct kobj_attribute pooled_attr = __ATTR_RO(pooled);

static ssize_t engine_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf)
{
	const struct prezero_engine *engine;
	bool dropped;

	engine = prezero_manager_engine(&dropped);
	if (dropped)
		return sysfs_emit(buf, "cpu (%s dropped)\n", engine->name);
	return sysfs_emit(buf, "%s\n", engine->name);
}

static struct kobj_attribute engine_attr = __ATTR_RO(engine);

/* One line for each engine built in, with the reason if it is unavailable. */
static ssize_t engines_show(struct kobject *kobj, struct kobj_attribute *attr,
			    char *buf)
{
	int size = 0;
	u32 id;

	for (id = 0; id <= LIMELIGHT_ENGINE_DMA; id++) {
		const struct prezero_engine *engine = prezero_engine_by_id(id);
		const char *missing = NULL;

		if (!engine)
			continue;
		if (want_init_on_free())
			missing = "not needed: freed pages are zeroed (init_on_free)";
		else if (engine->missing)
			missing = engine->missing();
		size += sysfs_emit_at(buf, size, "%s%s%s\n", engine->name,
				      missing ? ": " : "", missing ?: "");
	}
	return size;
}

static struct kobj_attribute engines_attr = __ATTR_RO(engines);

static ssize_t zero_us_show(struct kobject *kobj, struct kobj_attribute *attr,
			    char *buf)
{
	return sysfs_emit(buf, "%llu\n",
			  div_u64(prezero_manager_cpu_ns(), NSEC_PER_USEC));
}

static struct kobj_attribute zero_us_attr = __ATTR_RO(zero_us);

static ssize_t errors_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf)
{
	return sysfs_emit(buf, "%lu\n", prezero_manager_errors());
}

static struct kobj_attribute errors_attr = __ATTR_RO(errors);

static ssize_t verify_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf)
{
	return sysfs_emit(buf, "%d\n", READ_ONCE(limelight_prezero_verify));
}

static ssize_t verify_store(struct kobject *kobj, struct kobj_attribute *attr,
			    const char *buf, size_t count)
{
	bool verify;
	int ret;

	ret = kstrtobool(buf, &verify);
	if (!ret)
		WRITE_ONCE(limelight_prezero_verify, verify);
	return ret ?: count;
}

static struct kobj_attribute verify_attr = __ATTR_RW(verify);

static struct attribute *prezero_attrs[] = {
	&prezero_enabled_attr.attr,
	&target_attr.attr,
	&pooled_attr.attr,
	&engine_attr.attr,
	&engines_attr.attr,
	&zero_us_attr.attr,
	&errors_attr.attr,
	&verify_attr.attr,
	NULL,
};

static const struct attribute_group prezero_group = {
	.name = "prezero",
	.attrs = prezero_attrs,
};

#endif /* CONFIG_LIMELIGHT_PREZERO */

static const struct attribute_group *groups[] = {
	&core_group,
#ifdef CONFIG_LIMELIGHT_PROTECT
	&protect_group,
#endif
#ifdef CONFIG_LIMELIGHT_PREMAP
	&premap_group,
#endif
#ifdef CONFIG_LIMELIGHT_READAHEAD
	&readahead_group,
#endif
#ifdef CONFIG_LIMELIGHT_PREZERO
	&prezero_group,
#endif
	NULL,
};

int __init limelight_sysfs_init(void)
{
	struct kobject *kobj = kobject_create_and_add("limelight", mm_kobj);
	int ret;

	if (!kobj)
		return -ENOMEM;
	ret = sysfs_create_groups(kobj, groups);
	if (ret)
		kobject_put(kobj);
	return ret;
}
